package sim

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sidecar/internal/consume"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// TestOutageParksNothing: the app answers 500 to everything for so long that each message could use up its retries
// six times. All of them are accepted soon after the end.
func TestOutageParksNothing(t *testing.T) {
	t.Parallel()
	const outage = time.Minute
	for i, o := range presets {
		ten, delay := 10, time.Second
		if o.MaxRetries = &ten; len(o.RetryDelays) > 0 || o.Preset == topology.PresetDelayLadder {
			o.RetryDelays = []time.Duration{delay, delay + delay/4}
		} else {
			o.RetryDelay = delay
		}
		for j, backlog := range []int{30, 300} {
			if !chosen(2*i + j) {
				continue
			}
			t.Run(fmt.Sprintf("%s%s%v/%d", o.Preset, o.QueueType, o.RetryDelays, backlog), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := behindBad(t, o, step{}, 0)
					s.messages = nil
					s.add("waits", backlog, 0, 0, step{status: 200})
					s.add("comes", int(outage/time.Second), 0, time.Second, step{status: 200})
					began := time.Now()
					l := run(s, bug{dispatcher: func(d consume.Dispatcher) consume.Dispatcher {
						return dispatcher(func(ctx context.Context, m *message.Message) message.Outcome {
							if time.Since(began) > outage {
								return d.Dispatch(ctx, m)
							}
							time.Sleep(2 * time.Millisecond)
							return outcome(step{status: 500})
						})
					}}, logger())
					var last time.Duration
					for _, p := range s.messages {
						if len(l.receipts[p.id]) != 1 {
							t.Fatalf("%s was POSTed %d times after the outage", p.id, len(l.receipts[p.id]))
						}
						last = max(last, l.receipts[p.id][0].at.Sub(began))
					}
					if len(l.parked) > 0 || last > outage+longestWait {
						t.Errorf("%d are parked, and the last one was accepted %v after the outage", len(l.parked), last-outage)
					}
				})
			})
		}
	}
}
