package test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestNothingIsRejectedIntoNothing: the way of retries is deleted while nothing happens, and then messages fail. The
// topology is checked before the first reject of a second, so none of them is lost.
func TestNothingIsRejectedIntoNothing(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(*scene){
		"queue": func(sc *scene) { sc.deleteQueue(sc.retryQueue()) },
		"binding, in batches": func(sc *scene) {
			sc.unbind(sc.retryQueue(), "retry", sc.retryExchange())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("RETRY_DELAY", "1h", "QUEUE_TYPE", "classic")
			if name != "queue" {
				sc.with("BATCH_SIZE", "10")
			}
			ids := numbered("m", 20)
			sc.app.otherwise(func(*delivery) answer { return status(409) })
			s := sc.run()
			time.Sleep(1100 * time.Millisecond) // longer than a check is taken for granted
			remove(sc)
			sc.send(ids...)
			eventually(t, "every message waits for its retry", func() bool { return sc.ready(sc.retryQueue()) == len(ids) })
			eventually(t, "every retry is counted", func() bool {
				return s.metric("sidecar_messages_settled_total", `outcome="retry"`) == float64(len(ids))
			})
		})
	}
}

// TestMissingObjectIsDeclaredAtOnce: the broker answers 404 to a read of the dead-letter queue, and returns a message of the
// app. Either makes the sidecar declare what is missing at once, before a measurement has missed it.
func TestMissingObjectIsDeclaredAtOnce(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("PUBLISH_ADDR", "127.0.0.1:0")
	s := sc.run()
	sc.warm(s, 1)
	atOnce := func(kind string, deleteIt, meetIt func()) {
		t.Helper()
		for n := 1.0; n <= 4; n++ { // on a busy machine a measurement may be first
			time.Sleep(1100 * time.Millisecond) // longer than a check is taken for granted
			missed := strings.Count(s.log.String(), "topology fits")
			deleteIt()
			meetIt()
			eventually(t, "it is there again", func() bool { return s.metric("sidecar_objects_redeclared_total", `kind="`+kind+`"`) == n && s.ready() })
			if strings.Count(s.log.String(), "topology fits") == missed {
				return
			}
		}
		t.Errorf("a measurement missed it first, each time:\n%s", s.log.tail(10))
	}
	atOnce("dlq", func() { sc.deleteQueue(sc.dlq()) }, func() {
		if code, body := s.get(s.control, "/dlq/groups"); code != 404 {
			t.Errorf("%d %s", code, body)
		}
	})
	atOnce("exchange", func() { sc.deleteExchange(sc.exchange()) }, func() {
		s.refused("/publish/default/a", "posted", nil, 404, "unroutable")
	})
	s.published("/publish/default/a", "again", nil)
}

// TestMissingObjectIsNamed: a park that is returned says which object is missing, where the sidecar declares nothing. A stop
// gives the message back although the grace is an hour, and consumption goes on when the object is there.
func TestMissingObjectIsNamed(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("TOPOLOGY_MODE", "verify", "MAX_RETRIES", "0", "SHUTDOWN_GRACE", "1h").seed()
	gate := make(chan struct{})
	sc.app.on("m", answer{status: 500, gate: gate}, status(200))
	s := sc.run()
	sc.send("m")
	sc.app.await("m", 1)
	sc.deleteQueue(sc.dlq())
	close(gate)
	eventually(t, "a finding that names the object", func() bool {
		_, body := s.get(s.control, "/status")
		var st struct {
			State    string
			Findings []struct{ Object string }
		}
		return json.Unmarshal([]byte(body), &st) == nil && st.State == "paused" && len(st.Findings) > 0 &&
			!slices.ContainsFunc(st.Findings, func(f struct{ Object string }) bool { return f.Object != "queue "+strconv.Quote(sc.dlq()) })
	})
	eventually(t, "/readyz says what waits", func() bool {
		_, body := s.get(s.admin, "/readyz")
		return strings.Contains(body, "1 messages wait for a park or retry publish that failed")
	})
	s.stop()
	eventually(t, "the message back in the service queue", func() bool { return sc.ready(sc.queue()) == 1 })
	s = sc.seed().run()
	if d := sc.app.await("m", 2)[1]; d.Number("Amqp-Retry-Count") != 0 {
		t.Errorf("the stop was counted: Amqp-Retry-Count %s", d.Header.Get("Amqp-Retry-Count"))
	}
	sc.settledAll(s, 0)
}
