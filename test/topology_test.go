package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

// TestDeclaresTheSeedObjects exactly: the broker accepts another service's declarations of the same objects, which it
// does only when nothing differs.
func TestDeclaresTheSeedObjects(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	delete(sc.env, "SIDECAR_RETRY_DELAY") // the default of 5 s
	sc.run()
	sc.seedTTL(5000)
	if err := sc.declare(sc.retryQueue(), waitArgs(sc, 5001)); err == nil {
		t.Fatal("the broker accepts another TTL: this test proves nothing")
	}
	checkArguments(t, map[string]amqp.Table{sc.queue(): serviceArgs(sc), sc.retryQueue(): waitArgs(sc, 5000), sc.dlq(): {}})
	if n := sc.consumers(sc.queue()); n != 1 {
		t.Errorf("%d consumers of the service queue", n)
	}
	if n := sc.consumers(sc.dlq()) + sc.consumers(sc.retryQueue()); n != 0 {
		t.Errorf("%d consumers of retry queue and DLQ", n)
	}
}

// checkArguments compares with what the broker lists, to the last argument.
func checkArguments(t *testing.T, want map[string]amqp.Table) {
	t.Helper()
	listed := map[string]bool{}
	for _, row := range brokertest.Rows(t, "queues", "name", "durable", "auto_delete", "exclusive", "arguments") {
		queue, _ := row["name"].(string)
		args, ok := want[queue]
		if !ok {
			continue
		}
		listed[queue] = true
		if row["durable"] != true || row["auto_delete"] != false || row["exclusive"] == true {
			t.Errorf("%s: %v", queue, row)
		}
		got, _ := row["arguments"].(map[string]any)
		if got["x-queue-type"] == "classic" {
			delete(got, "x-queue-type") // RabbitMQ 4 writes its own default into the list
		}
		if len(got) != len(args) {
			t.Errorf("%s has arguments %v, want exactly %v", queue, got, args)
		}
		for k, v := range args {
			if f, ok := got[k].(float64); ok {
				got[k] = int64(f)
			}
			if fmt.Sprint(got[k]) != fmt.Sprint(v) {
				t.Errorf("%s: %s is %v, want %v", queue, k, got[k], v)
			}
		}
	}
	for queue := range want {
		if !listed[queue] {
			t.Errorf("the broker does not list %s", queue)
		}
	}
}

// TestQuorumVariant: at-least-once dead-lettering, no silent delivery limit.
func TestQuorumVariant(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("QUEUE_TYPE", "quorum", "MAX_RETRIES", "2")
	s := sc.run()
	durable := amqp.Table{"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
	with := func(more ...amqp.Table) amqp.Table {
		args := amqp.Table{}
		for _, m := range append([]amqp.Table{durable}, more...) {
			maps.Copy(args, m)
		}
		return args
	}
	want := map[string]amqp.Table{
		sc.queue():      with(serviceArgs(sc), amqp.Table{"x-delivery-limit": int32(2147483647)}),
		sc.retryQueue(): with(waitArgs(sc, 300)),
		sc.dlq():        {"x-queue-type": "quorum", "x-delivery-limit": int32(2147483647)},
	}
	checkArguments(t, want)
	for q, args := range want {
		if err := sc.declare(q, args); err != nil {
			t.Errorf("%s is declared otherwise: %v", q, err)
		}
	}
	sc.app.on("bad", status(500))
	sc.app.on("late", status(503), status(200))
	sc.send("bad", "late")
	d := sc.take(sc.dlq(), 1)[0]
	if n := len(sc.app.seen("bad")); n != 3 {
		t.Errorf("%d attempts, want 3", n)
	}
	if d.MessageId != "bad" || asInt(d.Headers["x-final-retry-count"]) != 2 {
		t.Errorf("parked %q with %v", d.MessageId, d.Headers)
	}
	sc.app.await("late", 2)
	sc.settledAll(s, 0)
}

func TestServiceWithoutAHyphen(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	sc.service, sc.prefix = "bb"+token(), "default"
	sc.env["SIDECAR_SERVICE"] = sc.service
	s := sc.run()
	sc.publish("", sc.queue(), message("m"))
	sc.app.await("m", 1)
	if sc.ready("default.dlq."+sc.service) != 0 || sc.ready("default.retry-queue."+sc.service) != 0 {
		t.Error("the queues of a service without a hyphen are not under default")
	}
	sc.settledAll(s, 0)
}

// TestEveryNameCanBeSet alone.
func TestEveryNameCanBeSet(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "1")
	p := sc.prefix
	names := map[string]string{
		"EXCHANGE": p + ".ex", "EXCHANGE_TYPE": "topic", "QUEUE": p + ".q", "BINDINGS": p + ".ex:a.#," + p + ".ex:b", "RETRY_EXCHANGE": p + ".rex",
		"RETRY_QUEUE": p + ".rq", "DLQ": p + ".parked",
	}
	for k, v := range names {
		sc.with(k, v)
	}
	sc.app.on("bad", status(500))
	s := sc.run()
	sc.publish(p+".ex", "a.b.c", message("bad"))
	sc.publish(p+".ex", "b", message("good"))
	sc.app.await("good", 1)
	d := sc.take(p+".parked", 1)[0]
	if d.Headers["x-original-queue"] != p+".q" || len(sc.app.seen("bad")) != 2 {
		t.Errorf("parked after %d attempts with %v", len(sc.app.seen("bad")), d.Headers)
	}
	if err := sc.declare(p+".rq", amqp.Table{"x-message-ttl": int32(300), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": p + ".q"}); err != nil {
		t.Error(err)
	}
	if sc.ready(sc.queue()) >= 0 {
		t.Error("the default queue was declared too")
	}
	s.stop()
}

// TestVerifyMode touches nothing, says what is missing and starts when it is there.
func TestVerifyMode(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("TOPOLOGY_MODE", "verify")
	s := start(t, sc.env)
	eventually(t, "a log line naming a missing queue", func() bool { return s.log.mentions(sc.queue()) })
	stays(t, time.Second, "up and not ready", func() bool { return !s.ended() && !s.ready() })
	if sc.ready(sc.queue()) >= 0 || sc.ready(sc.dlq()) >= 0 {
		t.Error("verify mode declared queues")
	}
	sc.seed().send("m")
	brokertest.Eventually(t, 90*time.Second, "the message, once the topology is there", func() bool { return len(sc.app.seen("m")) == 1 })
	sc.settledAll(s.awaitReady(), 0)
}

// TestModeNone checks nothing and just consumes.
func TestModeNone(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("TOPOLOGY_MODE", "none").seedTTL(350)
	sc.app.on("m", status(500), status(200))
	sc.send("m")
	s := sc.run()
	sc.app.await("m", 2)
	sc.settledAll(s, 0)
}

// TestMissingObjectIsNamed: a publish that is returned or refused says which object of its route is missing, also where
// the sidecar checks nothing. A stop gives the message back without waiting for its grace of an hour, and consumption
// goes on when the object is there.
func TestMissingObjectIsNamed(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"none", "verify"} {
		for what, c := range map[string]struct {
			retries string
			remove  func(*scene)
			object  func(*scene) string
		}{
			"retry exchange":    {"1", func(sc *scene) { sc.deleteExchange(sc.retryExchange()) }, func(sc *scene) string { return "exchange " + strconv.Quote(sc.retryExchange()) }},
			"retry queue":       {"1", func(sc *scene) { sc.deleteQueue(sc.retryQueue()) }, func(sc *scene) string { return "queue " + strconv.Quote(sc.retryQueue()) }},
			"dead-letter queue": {"0", func(sc *scene) { sc.deleteQueue(sc.dlq()) }, func(sc *scene) string { return "queue " + strconv.Quote(sc.dlq()) }},
		} {
			t.Run(mode+" "+what, func(t *testing.T) {
				t.Parallel()
				sc := newScene(t).with("TOPOLOGY_MODE", mode, "MAX_RETRIES", c.retries, "SHUTDOWN_GRACE", "1h").seed()
				gate := make(chan struct{})
				sc.app.on("m", answer{status: 500, gate: gate}, status(200))
				s := sc.run()
				sc.send("m")
				sc.app.await("m", 1)
				c.remove(sc)
				close(gate)
				eventually(t, "a finding that names the object", func() bool {
					_, body := s.get(s.control, "/status")
					var st struct {
						State    string
						Findings []struct{ Object string }
					}
					return json.Unmarshal([]byte(body), &st) == nil && st.State == "paused" && len(st.Findings) > 0 &&
						!slices.ContainsFunc(st.Findings, func(f struct{ Object string }) bool { return f.Object != c.object(sc) })
				})
				s.stop()
				eventually(t, "the message back in the service queue", func() bool { return sc.ready(sc.queue()) == 1 })
				s = sc.seed().run()
				if d := sc.app.await("m", 2)[1]; d.number("Amqp-Retry-Count") != 0 {
					t.Errorf("the stop was counted: Amqp-Retry-Count %s", d.header.Get("Amqp-Retry-Count"))
				}
				sc.settledAll(s, 0)
			})
		}
	}
}

// TestModeNoneGoesOn when a missing object is there again, without a restart.
func TestModeNoneGoesOn(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("TOPOLOGY_MODE", "none").seed()
	sc.deleteExchange(sc.retryExchange())
	sc.app.on("m", status(500), status(200))
	sc.send("m")
	s := start(t, sc.env).listen()
	eventually(t, "a log line naming the exchange", func() bool {
		return s.log.mentions("topology does not fit") && s.log.mentions(`exchange \"`+sc.retryExchange())
	})
	sc.seed()
	brokertest.Eventually(t, 90*time.Second, "ready, and the message", func() bool { return s.ready() && len(sc.app.seen("m")) == 2 })
	sc.settledAll(s, 0)
}
