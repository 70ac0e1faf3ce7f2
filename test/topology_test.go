package test

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

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

// TestMissingObjectIsNamed: a publish that is returned or refused says which object of its route is missing, also where
// the sidecar checks nothing. A stop gives the message back without waiting for its grace of an hour, and consumption
// goes on when the object is there.
func TestMissingObjectIsNamed(t *testing.T) {
	t.Parallel()
	for mode, c := range map[string]struct {
		retries string
		remove  func(*scene)
		object  func(*scene) string
	}{
		"none": {
			"1", func(sc *scene) { sc.deleteExchange(sc.retryExchange()) },
			func(sc *scene) string { return "exchange " + strconv.Quote(sc.retryExchange()) },
		},
		"verify": {
			"0", func(sc *scene) { sc.deleteQueue(sc.dlq()) },
			func(sc *scene) string { return "queue " + strconv.Quote(sc.dlq()) },
		},
	} {
		t.Run(mode, func(t *testing.T) {
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
