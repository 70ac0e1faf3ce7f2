package test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

// linked puts a proxy between the scene's sidecar and the broker.
func linked(t testing.TB, sc *scene) *proxy {
	t.Helper()
	p := newProxy(t, brokerAddr(t))
	sc.with("AMQP_URL", brokerURLWith(t, func(u *url.URL) { u.Host = p.addr }))
	return p
}

// TestReconnectsAfterEveryCut: readiness goes and returns, the messages go on.
func TestReconnectsAfterEveryCut(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	p := linked(t, sc)
	s := sc.run()
	for i, id := range numbered("m", 6) {
		sc.send(id)
		sc.app.await(id, 1)
		if i%2 == 0 {
			p.cut()
		} else {
			p.down()
			eventually(t, "GET /readyz is not 200 without a broker", func() bool { return !s.ready() })
			if status, _ := s.get(s.admin, "/livez"); status != 200 {
				t.Errorf("GET /livez is %d without a broker", status)
			}
			if status, _ := s.get(s.admin, "/readyz/broker"); status != 503 {
				t.Errorf("GET /readyz/broker is %d without a broker", status)
			}
			if n := s.metric("sidecar_amqp_connected"); n != 0 {
				t.Errorf("sidecar_amqp_connected is %v without a broker", n)
			}
			p.up()
		}
		s.awaitReady()
		eventually(t, "one consumer", func() bool { return sc.consumers(sc.queue()) == 1 })
	}
	sc.send("last")
	sc.app.await("last", 1)
	if n := s.metric("sidecar_amqp_reconnects_total"); n < 1 {
		t.Errorf("sidecar_amqp_reconnects_total is %v after six cuts", n)
	}
	sc.settledAll(s, 0)
}

// TestHalfOpenConnection: the connection is not closed, the heartbeat notices.
func TestHalfOpenConnection(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("AMQP_HEARTBEAT", "1s").seed()
	p := linked(t, sc)
	s := sc.run()
	sc.send("before")
	sc.app.await("before", 1)
	s.awaitOutcome("before", "ack")
	t.Cleanup(p.freeze())
	sc.send("after")
	sc.app.await("after", 1)
	s.awaitReady()
}

func TestBrokerAwayAtStart(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	p := linked(t, sc)
	p.down()
	s := start(t, sc.env)
	eventually(t, "GET /startupz is 200 without a broker", func() bool { status, _ := s.get(s.admin, "/startupz"); return status == 200 })
	stays(t, time.Second, "not ready without a broker", func() bool { return !s.ready() && !s.ended() })
	sc.send("m")
	p.up()
	sc.app.await("m", 1)
	sc.settledAll(s.awaitReady(), 0)
}

// TestStaleAck: an answer that arrives after the connection was cut settles the copy of its message, and nothing else on
// the next connection. Message A is in flight when the cut comes; the tag of its delivery is another one's by then.
func TestStaleAck(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONCURRENCY", "4", "PREFETCH", "4").seed()
	p := linked(t, sc)
	late, hold := make(chan struct{}), make(chan struct{})
	sc.app.on("a", answer{status: 200, gate: late})
	sc.app.on("b", answer{status: 200, gate: hold})
	s := sc.run()
	sc.send("a")
	sc.app.await("a", 1)
	p.cut()
	sc.send("b")
	sc.app.await("b", 1)
	close(late)
	eventually(t, "the late answer counted as stale", func() bool { return s.metric("sidecar_stale_deliveries_total") > 0 })
	s.awaitOutcome("a", "ack")
	stays(t, time.Second, "the sidecar keeps its session", s.ready)
	s.kill()
	eventually(t, "B is back in the queue", func() bool { return sc.ready(sc.queue()) == 1 })
	close(hold)
	s = sc.run()
	sc.app.await("b", 2)
	sc.settledAll(s, 0)
	if n := len(sc.app.seen("a")); n != 1 {
		t.Errorf("A was POSTed %d times", n)
	}
}

// TestPrefetchedMessagesOfADeadSession are not POSTed: they come again.
func TestPrefetchedMessagesOfADeadSession(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONCURRENCY", "2", "PREFETCH", "50").seed()
	p := linked(t, sc)
	gate := make(chan struct{})
	sc.app.otherwise(func(*delivery) answer { return answer{status: 200, gate: gate} })
	s := sc.run()
	sc.warm(s, 2)
	before := sc.app.total()
	ids := numbered("m", 50)
	sc.send(ids...)
	eventually(t, "two messages in flight, the rest prefetched", func() bool { return sc.app.total() == before+2 && sc.ready(sc.queue()) == 0 })
	p.cut()
	eventually(t, "a new session", func() bool { return s.metric("sidecar_amqp_reconnects_total") > 0 && sc.consumers(sc.queue()) == 1 })
	close(gate)
	s.awaitAcked(ids...)
	sc.settledAll(s, 0)
	if n := sc.app.total() - before; n > 52 {
		t.Errorf("%d receipts of 50 messages; only the two in flight may come twice", n)
	}
}

// TestQueueDeletedWhileConsuming: the broker cancels the consumer without closing anything.
func TestQueueDeletedWhileConsuming(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("QUEUE_TYPE", queueType)
			s := sc.run()
			sc.deleteQueue(sc.queue())
			eventually(t, "the queue declared again and consumed", func() bool { return sc.consumers(sc.queue()) == 1 })
			s.awaitReady()
			sc.send("m")
			sc.app.await("m", 1)
			sc.settledAll(s, 0)
		})
	}
}

// TestRetryQueueGoneBeforeAReconnect: a reject to a missing queue loses the message without an error, so the chain is
// checked before that. A short time in which the sidecar has not noticed is unavoidable, but not after a reconnect.
func TestRetryQueueGoneBeforeAReconnect(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"declare", "verify"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("TOPOLOGY_MODE", mode).seed()
			p := linked(t, sc)
			sc.app.on("m", status(500), status(200))
			s := sc.run()
			p.down()
			eventually(t, "not ready", func() bool { return !s.ready() })
			sc.deleteQueue(sc.retryQueue())
			sc.send("m")
			p.up()
			if mode == "verify" {
				eventually(t, "a log line naming the missing queue", func() bool { return s.log.mentions(sc.retryQueue()) })
				stays(t, time.Second, "nothing is consumed", func() bool { return sc.app.total() == 0 && !s.ready() })
				sc.seed()
			}
			brokertest.Eventually(t, 90*time.Second, "both attempts", func() bool { return len(sc.app.seen("m")) == 2 })
			sc.settledAll(s, 0)
		})
	}
}

// TestRetryQueueGoneAtRunTime: it is checked from time to time, and so is its exchange. Once the sidecar has noticed, it
// repairs the chain or stops taking messages; in no case does it go on rejecting.
func TestRetryQueueGoneAtRunTime(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ mode, what string }{{"declare", "queue"}, {"declare", "exchange"}, {"verify", "queue"}} {
		t.Run(tc.mode+" "+tc.what, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("TOPOLOGY_MODE", tc.mode).seed()
			sc.app.on("m", status(500), status(200))
			s := sc.run().listen()
			gone := sc.retryQueue()
			if tc.what == "queue" {
				sc.deleteQueue(gone)
			} else {
				gone = sc.retryExchange()
				sc.deleteExchange(gone)
			}
			brokertest.Eventually(t, 90*time.Second, "repaired, or not ready and saying why", func() bool {
				return s.log.mentions(gone) && (s.log.mentions("declared again") || !s.ready())
			})
			sc.send("m")
			if tc.mode == "verify" {
				stays(t, time.Second, "nothing is taken", func() bool { return sc.app.total() == 0 })
				sc.seed()
			}
			brokertest.Eventually(t, 90*time.Second, "both attempts", func() bool { return len(sc.app.seen("m")) == 2 })
			sc.settledAll(s, 0)
		})
	}
}

// TestUnboundRetryQueueLosesNothing: every object is there and still a reject would go nowhere. AMQP cannot show
// bindings, so where the sidecar may not make them itself it must find out without risking the message.
func TestUnboundRetryQueueLosesNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"verify", "none", "declare"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("TOPOLOGY_MODE", mode).seed()
			ch := sc.channel()
			if err := ch.QueueUnbind(sc.retryQueue(), "retry", sc.retryExchange(), nil); err != nil {
				t.Fatal(err)
			}
			_ = ch.Close()
			sc.app.on("m", status(500), status(200))
			sc.send("m")
			s := start(t, sc.env)
			sc.app.await("m", 1)
			if mode != "declare" {
				eventually(t, "a log line about the way that is not there", func() bool { return s.log.mentions(sc.retryExchange()) })
				sc.bind(sc.retryQueue(), "retry", sc.retryExchange())
			}
			brokertest.Eventually(t, 90*time.Second, "the second attempt", func() bool { return slices.Contains(s.log.outcomes("m"), "ack") })
			list := sc.app.seen("m")
			if last := list[len(list)-1]; last.number("Amqp-Retry-Count") != len(list)-1 && mode == "declare" {
				t.Errorf("%d receipts, the last with Amqp-Retry-Count %s", len(list), last.header.Get("Amqp-Retry-Count"))
			}
			sc.settledAll(s, 0)
		})
	}
}

// TestUnboundAtRunTime: AMQP cannot show that a binding has gone, so in declare mode it is made again now and then.
func TestUnboundAtRunTime(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	s := sc.run()
	ch := sc.channel()
	if err := errors.Join(ch.Confirm(false), ch.QueueUnbind(sc.retryQueue(), "retry", sc.retryExchange(), nil)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	returned := ch.NotifyReturn(make(chan amqp.Return, 1))
	brokertest.Eventually(t, 90*time.Second, "a way to the retry queue, and through it", func() bool {
		confirm, err := ch.PublishWithDeferredConfirm(sc.retryExchange(), "retry", true, false, message("m"))
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := confirm.WaitContext(ctx); err != nil || !ok {
			t.Fatalf("confirmed %v: %v", ok, err)
		}
		select {
		case <-returned: // before the confirm, as brokers do
			return false
		default:
			return true
		}
	})
	sc.app.await("m", 1)
	sc.settledAll(s, 0)
}

// TestWrongPasswordNeverExits and never prints it; the right one in the file is enough to heal.
func TestWrongPasswordNeverExits(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	file := filepath.Join(t.TempDir(), "password")
	put := func(s string) {
		if err := os.WriteFile(file, []byte(s+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	u, _ := url.Parse(brokertest.URL(t))
	right, _ := u.User.Password()
	put("canary-wrong-password")
	sc.with("AMQP_URL", brokerURLWith(t, func(u *url.URL) { u.User = nil }), "AMQP_USERNAME", brokerUser(t), "AMQP_PASSWORD_FILE", file)
	s := start(t, sc.env)
	eventually(t, "a log line about the refused login", func() bool {
		return s.log.mentions("access_refused") || s.log.mentions("credential") || s.log.mentions("password") || s.log.mentions("login") || s.log.mentions("403")
	})
	stays(t, 2*time.Second, "up and not ready", func() bool { return !s.ended() && !s.ready() })
	sc.send("m")
	put(right)
	sc.app.await("m", 1)
	if s.log.mentions("canary-wrong-password") {
		t.Error("the log holds the password")
	}
	sc.settledAll(s, 0)
}

// TestCredentialsRotateWithoutRestart: the file is read at every dial.
func TestCredentialsRotateWithoutRestart(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	p := linked(t, sc)
	dir := t.TempDir()
	file := filepath.Join(dir, "url")
	put := func(s string) {
		// As Kubernetes does it: a new file, then a rename.
		if err := os.WriteFile(file+".new", []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	right := sc.env["SIDECAR_AMQP_URL"]
	delete(sc.env, "SIDECAR_AMQP_URL")
	sc.with("AMQP_URL_FILE", file)
	put(right)
	s := sc.run()
	put(brokerURLWith(t, func(u *url.URL) { u.Host = p.addr; u.User = url.UserPassword("absent", "canary-secret") }))
	p.cut()
	eventually(t, "not ready with the wrong user", func() bool { return !s.ready() })
	put(right)
	s.awaitReady()
	sc.send("m")
	sc.app.await("m", 1)
	if s.log.mentions("canary-secret") {
		t.Error("the log holds the password")
	}
	sc.settledAll(s, 0)
}

// TestListOfBrokers: the first is dead.
func TestListOfBrokers(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	dead := brokerURLWith(t, func(u *url.URL) { u.Host = freeAddr(t) })
	sc.with("AMQP_URL", dead+","+brokertest.URL(t))
	sc.send("m")
	s := sc.run()
	sc.app.await("m", 1)
	sc.settledAll(s, 0)
}
