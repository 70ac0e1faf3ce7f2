package test

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

// failsToPark runs the sidecar and deletes the dead-letter queue before the app fails message m. In verify mode the
// park fails until the queue is there again.
func failsToPark(t testing.TB, sc *scene) *sidecar {
	t.Helper()
	gate := make(chan struct{})
	sc.app.on("m", answer{status: 500, gate: gate}, status(500))
	sc.send("m")
	s := sc.run()
	sc.app.await("m", 1)
	sc.deleteQueue(sc.dlq())
	close(gate)
	// Declare mode may put the queue back by itself.
	eventually(t, "a failed park in the metrics, or the park", func() bool {
		return s.metric("sidecar_park_failures_total") > 0 || sc.ready(sc.dlq()) > 0
	})
	return s
}

// TestDLQGoneWhenParking: the broker confirms a publish to nowhere; the sidecar must not believe it.
func TestDLQGoneWhenParking(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"declare", "verify"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("MAX_RETRIES", "0", "TOPOLOGY_MODE", mode).seed()
			s := failsToPark(t, sc)
			if mode == "verify" {
				if sc.ready(sc.dlq()) >= 0 {
					t.Error("verify mode declared a queue")
				}
				if err := sc.declare(sc.dlq(), nil); err != nil {
					t.Fatal(err)
				}
			}
			d := sc.take(sc.dlq(), 1)[0]
			if d.MessageId != "m" || asInt(d.Headers["x-final-status-code"]) != 500 {
				t.Errorf("parked %q with %v", d.MessageId, d.Headers)
			}
			sc.settledAll(s, 0)
		})
	}
}

// TestDLQGoneAndEnded: what could not be parked is in the service queue when the sidecar has been killed or stopped.
func TestDLQGoneAndEnded(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*sidecar){"killed": (*sidecar).kill, "stopped": (*sidecar).stop} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("MAX_RETRIES", "0", "TOPOLOGY_MODE", "verify", "SHUTDOWN_GRACE", "1h").seed()
			end(failsToPark(t, sc))
			eventually(t, "the message back in the service queue", func() bool { return sc.ready(sc.queue()) == 1 })
		})
	}
}

// TestFullDLQRefuses: a policy-like limit on the DLQ nacks the publish; nothing is lost.
func TestFullDLQRefuses(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "0", "TOPOLOGY_MODE", "none").seed()
	sc.deleteQueue(sc.dlq())
	if err := sc.declare(sc.dlq(), amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"}); err != nil {
		t.Fatal(err)
	}
	sc.app.otherwise(func(*delivery) answer { return status(500) })
	ids := numbered("m", 4)
	sc.send(ids...)
	s := sc.run()
	eventually(t, "a failed park in the metrics", func() bool { return s.metric("sidecar_park_failures_total") > 0 })
	found := map[string]bool{}
	for range ids {
		found[sc.take(sc.dlq(), 1)[0].MessageId] = true // makes room for the next one
	}
	if len(found) != len(ids) {
		t.Errorf("parked %v, want each of %v once", found, ids)
	}
	sc.settledAll(s, 0)
}

// TestDangerousPropertiesAreNotCopied: expiration, user id, CC, transient mode. The publisher is not the user that the
// sidecar runs as: a broker refuses a copy that claims another's user id.
func TestDangerousPropertiesAreNotCopied(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "0").seed()
	aside := sc.prefix + ".aside"
	if err := sc.declare(aside, nil); err != nil {
		t.Fatal(err)
	}
	sc.app.otherwise(func(*delivery) answer { return status(500) })
	m := message("m")
	m.Expiration, m.UserId, m.DeliveryMode, m.ReplyTo = "3600000", brokerUser(t), amqp.Transient, "answers"
	sc.sendMessage(m)
	cc := message("cc")
	cc.Headers = amqp.Table{"CC": []any{aside}, "BCC": []any{aside}}
	sc.publish("", sc.queue(), cc)
	sc.take(aside, 1) // the copy the publisher asked for
	user := newAccount(t)
	user.may(".*", ".*", ".*")
	sc.with("AMQP_USERNAME", user.name, "AMQP_PASSWORD", "canary-password")
	s := sc.run()
	for _, d := range sc.take(sc.dlq(), 2) {
		if d.Expiration != "" || d.UserId != "" || d.DeliveryMode != amqp.Persistent || d.Headers["CC"] != nil || d.Headers["BCC"] != nil {
			t.Errorf("%s: expiration %q, user id %q, mode %d, headers %v", d.MessageId, d.Expiration, d.UserId, d.DeliveryMode, d.Headers)
		}
		switch d.MessageId {
		case "m":
			if d.Headers["x-original-expiration"] != "3600000" || d.Headers["x-original-user-id"] != brokerUser(t) || d.ReplyTo != "answers" {
				t.Errorf("m: %v", d.Headers)
			}
		case "cc":
			if !strings.Contains(fmt.Sprint(d.Headers["x-original-cc"]), aside) {
				t.Errorf("x-original-cc is %v", d.Headers["x-original-cc"])
			}
		}
	}
	sc.settledAll(s, 0)
	if n := sc.ready(aside); n != 0 {
		t.Errorf("parking sent %d second copies to the queue named in CC", n)
	}
}

// TestDirectReplyToIsParked: a publisher of another protocol can bring a reply-to that the broker refuses from a client
// of AMQP 0-9-1. The message is retried and parked without it.
func TestDirectReplyToIsParked(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "1", "RETRY_DELAY", "", "RETRY_DELAYS", "50ms")
	sc.app.on("m", status(500))
	s := sc.run()
	brokertest.Eval(t, fmt.Sprintf(`X = rabbit_misc:r(<<%q>>, exchange, <<>>), Key = <<%q>>,
		P = rabbit_basic:properties([{message_id, <<"m">>}, {reply_to, <<"amq.rabbitmq.reply-to">>}]),
		case code:ensure_loaded(mc_amqpl) of
			{module, _} ->
				{ok, M} = mc_amqpl:message(X, Key, rabbit_basic:build_content(P, <<"x">>)),
				ok = rabbit_queue_type:publish_at_most_once(X, M);
			_ -> rabbit_basic:publish(X, Key, P, <<"x">>)
		end`, brokertest.VhostName(t), sc.queue()))
	d := sc.take(sc.dlq(), 1)[0]
	if d.MessageId != "m" || d.ReplyTo != "" || d.Headers["x-original-reply-to"] != "amq.rabbitmq.reply-to" || d.Headers["x-final-retry-count"] != int32(1) {
		t.Errorf("%+v", d)
	}
	sc.settledAll(s, 0)
}

// TestForgedFinalHeadersAreReplaced: what a publisher says about parking is not ours.
func TestForgedFinalHeadersAreReplaced(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "0").seed()
	sc.app.on("m", status(500))
	m := message("m")
	m.Headers = amqp.Table{
		"x-final-status-code": "forged", "x-final-error": "forged", "x-final-reason": "forged", "x-final-detail": "forged", "x-original-queue": "forged",
		"x-final-problem-title": "forged", "x-final-retry-count": "forged",
	}
	sc.sendMessage(m)
	s := sc.run()
	d := sc.take(sc.dlq(), 1)[0]
	for k, v := range d.Headers {
		if v == "forged" {
			t.Errorf("%s is still the publisher's", k)
		}
	}
	sc.settledAll(s, 0)
}

// TestHeaderTableNearTheFrameSize: one more x-death entry would kill the connection for ever.
func TestHeaderTableNearTheFrameSize(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("MAX_RETRIES", "1", "QUEUE_TYPE", queueType)
			sc.app.otherwise(func(d *delivery) answer {
				if strings.HasPrefix(d.id, "near") {
					return status(500)
				}
				return status(200)
			})
			s := sc.run()
			sizes := []int{100_000, 126_000, 126_800, 127_500, 129_000, 130_000, 130_700, 130_900}
			for i, n := range sizes {
				sc.sendHeaders(fmt.Sprintf("near-%d", i), amqp.Table{"x-big": strings.Repeat("b", n), "x-small": "s"})
			}
			good := numbered("good", 10)
			sc.send(good...)
			sc.app.awaitAll(good...)
			got := map[string]bool{}
			for _, d := range sc.take(sc.dlq(), len(sizes)) {
				got[d.MessageId] = true
				if d.Headers["x-final-reason"] == nil || d.Headers["x-original-queue"] != sc.queue() {
					t.Errorf("%s parked without its reason: %v", d.MessageId, keys(d.Headers))
				}
			}
			if len(got) != len(sizes) {
				t.Errorf("parked %v, want %d different ones", got, len(sizes))
			}
			sc.settledAll(s, 0)
		})
	}
}

func keys(h amqp.Table) []string {
	var list []string
	for k := range h {
		list = append(list, k)
	}
	return list
}
