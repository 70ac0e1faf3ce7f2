package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"sidecar/internal/topology"
)

// TestEveryStepFrozen stops a sidecar whose connection went silent at one step after the other: in the handshake, while
// it subscribes, in the middle of its messages. Whatever it waits for then must not keep it from stopping, and the next
// one finds everything. Without -sim.all it tries one step of each four.
func TestEveryStepFrozen(t *testing.T) { t.Parallel(); everyStep(t, freeze, 50) }

// TestEveryStepCut cuts the connection at each step, before and after the broker has carried it out.
func TestEveryStepCut(t *testing.T) { t.Parallel(); everyStep(t, cut, 50) }

func everyStep(t *testing.T, what trouble, steps int) {
	from, by := 1, 1
	if !*all {
		from, by = 1+int(*first%stepsPerRun), stepsPerRun
	}
	for _, connection := range []string{consuming, publishing} {
		for n := from; n <= steps; n += by {
			for _, after := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					s := draw(1)
					s.mode = topology.ModeDeclare
					s.messages = s.messages[:min(10, len(s.messages))]
					s.concurrency, s.prefetch, s.latency, s.confirm = 2, 4, 0, 0
					s.faults = []*fault{
						{what: what, connection: connection, n: n, after: after},
						{what: stopNow, delay: 3 * time.Second, lasts: 10 * time.Second},
					}
					if j := run(s, bug{}, silent).judge(s); len(j.lines) > 0 {
						t.Error(report(j))
					}
				})
			}
		}
	}
}
