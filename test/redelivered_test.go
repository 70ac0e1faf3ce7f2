package test

import (
	"fmt"
	"testing"
)

// TestEndsAreNoAttempts: a sidecar that ends while the app has a message, by kill -9 or by a stop whose grace is over,
// gives it back. The app gets it as redelivered, and nothing is counted.
func TestEndsAreNoAttempts(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*sidecar){"kill": (*sidecar).kill, "stop": (*sidecar).stop} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("MAX_RETRIES", "1", "SHUTDOWN_GRACE", "100ms")
			gate := make(chan struct{})
			t.Cleanup(func() { close(gate) })
			hang := answer{gate: gate}
			sc.app.on("m", hang, hang, hang, status(200))
			s := sc.run()
			sc.send("m")
			for i := range 3 {
				sc.app.await("m", i+1)
				end(s)
				s = sc.run()
			}
			s.awaitOutcome("m", "ack")
			for i, d := range sc.app.Seen("m") {
				if d.Header.Get("Amqp-Redelivered") != fmt.Sprint(i > 0) || d.Number("Amqp-Retry-Count") != 0 {
					t.Errorf("receipt %d: %v", i+1, d.Header)
				}
			}
			sc.settledAll(s, 0)
		})
	}
}
