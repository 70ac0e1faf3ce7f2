package test

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"
)

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
