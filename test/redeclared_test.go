package test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/postgrestest"
)

// TestDeletedObjectIsReported: it is declared again, and that is an error in the log, a count by kind, and a warning.
func TestDeletedObjectIsReported(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, word string
		name       func(*scene) string
	}{
		{"main", "queue", (*scene).queue}, {"retry", "queue", (*scene).retryQueue}, {"dlq", "queue", (*scene).dlq},
		{"exchange", "exchange", (*scene).exchange}, {"exchange", "exchange", (*scene).retryExchange},
	} {
		t.Run(c.kind+" "+c.name(&scene{}), func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("RETRY_DELAY", "1h")
			sc.app.on("m", status(500))
			s := sc.run().listen()
			if n := s.metric("sidecar_objects_redeclared_total"); n != 0 || s.log.mentions("declared again") {
				t.Errorf("%v objects were declared again at the start", n)
			}
			sc.send("m")
			eventually(t, "the message waits, and its depth is measured", func() bool {
				return s.metric("sidecar_queue_messages_ready", `kind="retry"`) == 1
			})
			if c.word == "queue" {
				sc.deleteQueue(c.name(sc))
			} else {
				sc.deleteExchange(c.name(sc))
			}
			brokertest.Eventually(t, 90*time.Second, "it is there again, and reported", func() bool {
				return s.metric("sidecar_objects_redeclared_total", `kind="`+c.kind+`"`) == 1 && s.ready()
			})
			if n := s.metric("sidecar_objects_redeclared_total"); n != 1 {
				t.Errorf("%v objects are counted in all", n)
			}
			if !s.log.mentions(`"msg":"`+c.word+` declared again"`) || !s.log.mentions("messages may be lost since ") {
				t.Errorf("the log does not report it:\n%s", s.log.tail(10))
			}
			if s.log.mentions(`"msg":"consumer cancelled"`) {
				t.Errorf("it is reported as declared by another client:\n%s", s.log.tail(10))
			}
			depth := c.kind == "retry"
			if c.kind != "exchange" && s.log.mentions(`"last_depth":1`) != depth {
				t.Errorf("the log has another depth:\n%s", s.log.tail(10))
			}
			_, _, body := s.api("").ask("GET", "/status", "")
			var st struct {
				Warnings   []string
				Redeclared []struct{ Object, Kind string }
			}
			if err := json.Unmarshal([]byte(body), &st); err != nil || len(st.Redeclared) != 1 || st.Redeclared[0].Kind != c.kind ||
				!slices.ContainsFunc(st.Warnings, func(w string) bool {
					return strings.HasPrefix(w, fmt.Sprintf("%s %q (%s) was deleted and was declared again", c.word, c.name(sc), c.kind))
				}) {
				t.Errorf("the state is %s: %v", body, err)
			}
		})
	}
}

// TestQueueReplacedByAnotherClient: a check after the deletion finds the queue again, so the sidecar declares nothing. That
// the broker cancelled the consumer is a line in the log.
func TestQueueReplacedByAnotherClient(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"verify", "none"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("TOPOLOGY_MODE", mode).seed()
			var s *sidecar
			cancelled := func() bool { return s.log.mentions(`"level":"warn","msg":"consumer cancelled"`) }
			// Again, if the check came before the other client's declaration, or RabbitMQ 3.10 cancelled no consumer.
			for n := 0; n == 0 || n < 5 && !cancelled(); n++ {
				s = sc.run()
				id := fmt.Sprint("m", n)
				sc.send(id)
				sc.app.await(id, 1)
				ch := sc.channel()
				_, err := ch.QueueDelete(sc.queue(), false, false, true) // without an answer, so that both come at once
				if _, again := ch.QueueDeclare(sc.queue(), true, false, false, false, serviceArgs(sc)); err != nil || again != nil {
					t.Fatal(err, again)
				}
				sc.bind(sc.queue(), "", sc.exchange())
				for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && !cancelled(); {
					time.Sleep(50 * time.Millisecond)
				}
				if n := s.metric("sidecar_objects_redeclared_total"); n != 0 && !s.log.mentions("it was deleted") {
					t.Errorf("%v objects are counted as declared again", n)
				}
				if !cancelled() {
					s.stop()
				}
			}
			if !cancelled() {
				t.Error("it is not logged")
			}
			eventually(t, "the new queue is consumed", func() bool { return sc.consumers(sc.queue()) == 1 })
		})
	}
}

// TestNothingIsRejectedIntoNothing: the way of retries is deleted while nothing happens, and then messages fail. The
// topology is checked before the first reject of a second, so none of them is lost.
func TestNothingIsRejectedIntoNothing(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(*scene) error{
		"queue":    func(sc *scene) error { sc.deleteQueue(sc.retryQueue()); return nil },
		"exchange": func(sc *scene) error { sc.deleteExchange(sc.retryExchange()); return nil },
		"binding": func(sc *scene) error {
			return sc.channel().QueueUnbind(sc.retryQueue(), "retry", sc.retryExchange(), nil)
		},
	} {
		for _, batch := range []string{"", "10"} {
			t.Run(name+" "+batch, func(t *testing.T) {
				t.Parallel()
				sc := newScene(t).with("RETRY_DELAY", "1h", "QUEUE_TYPE", "classic")
				if batch != "" {
					sc.with("BATCH_SIZE", batch)
				}
				ids := numbered("m", 20)
				sc.app.otherwise(func(*delivery) answer { return status(409) })
				s := sc.run()
				time.Sleep(1100 * time.Millisecond) // longer than a check is taken for granted
				if err := remove(sc); err != nil {
					t.Fatal(err)
				}
				sc.send(ids...)
				eventually(t, "every message waits for its retry", func() bool { return sc.ready(sc.retryQueue()) == len(ids) })
				if n := s.metric("sidecar_messages_settled_total", `outcome="retry"`); n != float64(len(ids)) {
					t.Errorf("%v retries are counted, want %d", n, len(ids))
				}
			})
		}
	}
}

// TestDeletedWhileMessagesFail: only messages that were rejected in the second before can be lost.
func TestDeletedWhileMessagesFail(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("RETRY_DELAY", "1h", "QUEUE_TYPE", "classic")
	sc.app.otherwise(func(*delivery) answer { return status(409) })
	s := sc.run()
	sent := 0
	fail := func() bool {
		sent++
		sc.send(fmt.Sprint("m", sent))
		return s.metric("sidecar_objects_redeclared_total") == 1
	}
	for range 20 {
		fail()
	}
	eventually(t, "they wait for their retries", func() bool { return sc.ready(sc.retryQueue()) == sent })
	sc.deleteQueue(sc.retryQueue())
	lost := sent
	eventually(t, "the retry queue is declared again", fail)
	before := sent
	for range 20 {
		fail()
	}
	eventually(t, "later messages wait for their retries", func() bool { return sc.ready(sc.retryQueue()) >= sent-before })
	t.Logf("%d of %d messages that failed before the check were lost", sent-lost-sc.ready(sc.retryQueue()), before-lost)
}

// TestDeletedExchangeOfSeveralQueues: one subscription declares the exchange that they share, and each of them its own
// bindings, at once.
func TestDeletedExchangeOfSeveralQueues(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	sc.with("SUBSCRIPTIONS", "one,two", "EXCHANGE", sc.prefix+".events", "EXCHANGE_TYPE", "topic",
		"SUB_ONE_BINDINGS", sc.prefix+".events:a", "SUB_TWO_BINDINGS", sc.prefix+".events:b")
	s := sc.run().listen()
	sc.deleteExchange(sc.prefix + ".events")
	brokertest.Eventually(t, 90*time.Second, "it is there again, and reported once", func() bool {
		return s.metric("sidecar_objects_redeclared_total") == 1 && s.ready()
	})
	for _, key := range []string{"a", "b"} {
		eventually(t, "the binding "+key, func() bool { return routed(sc, sc.prefix+".events", key) })
		sc.app.await(key, 1)
	}
	if _, body := s.get(s.control, "/status"); !strings.Contains(body, `"subscription":"`) {
		t.Errorf("the state does not name the subscription: %s", body)
	}
}

// routed publishes a message and reports whether it reached a queue.
func routed(sc *scene, exchange, key string) bool {
	ch := sc.channel()
	defer func() { _ = ch.Close() }()
	returned := ch.NotifyReturn(make(chan amqp.Return, 1))
	if err := ch.Confirm(false); err != nil {
		sc.t.Fatal(err)
	}
	c, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, message(key))
	return err == nil && c.Wait() && len(returned) == 0
}

// TestPublishToADeletedExchange: the answer to a publish of the app is 404 and makes the sidecar declare its exchange
// again at once, before the watcher has missed it.
func TestPublishToADeletedExchange(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	db.Exec(outboxTable)
	for _, by := range []string{"endpoint", "outbox"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("PUBLISH_ADDR", "127.0.0.1:0")
			if by == "outbox" {
				sc.with("OUTBOX_DSN", db.DSN, "OUTBOX_POLL_INTERVAL", "100ms")
			}
			s := sc.run()
			sc.warm(s, 1)
			time.Sleep(1100 * time.Millisecond) // longer than a check is taken for granted
			sc.deleteExchange(sc.exchange())
			if by == "outbox" {
				db.Exec(`INSERT INTO outbox (routing_key, body) VALUES ('b', 'committed')`)
			} else {
				s.refused("/publish/default/a", "posted", nil, 404, "unroutable")
			}
			eventually(t, "the exchange is there again", func() bool { return s.metric("sidecar_objects_redeclared_total", `kind="exchange"`) == 1 })
			if s.log.mentions("topology fits") {
				t.Errorf("the watcher missed it first:\n%s", s.log.tail(10))
			}
			s.published("/publish/default/a", "again", nil)
		})
	}
}
