package sim

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sidecar/internal/consume"
	"sidecar/internal/message"
	"sidecar/internal/retry"
	"sidecar/internal/sim/model"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// How long a good message may wait for its POST behind bad ones.
const (
	medianWait  = 2 * time.Second
	longestWait = 5 * time.Second
)

// TestBadMessagesInFront: 200 messages that always fail are in front of good ones, or fail long before the first good
// one comes. The good ones do not wait for the bad ones, which are all parked after their attempts, no more and no less.
func TestBadMessagesInFront(t *testing.T) {
	t.Parallel()
	for i, o := range presets {
		for j, c := range []struct {
			name   string
			delay  time.Duration // where the preset has one
			late   time.Duration
			gather int
			bad    step
		}{
			{"500", 5 * time.Second, 0, 1, step{status: 500}},
			{"500, short delay", 100 * time.Millisecond, 0, 1, step{status: 500}},
			{"500, late", 5 * time.Second, 30 * time.Second, 1, step{status: 500}},
			{"reset, short delay, late", 100 * time.Millisecond, 20 * time.Second, 1, step{failure: message.FailureReset}},
			{"503, slow", time.Second, 0, 1, step{status: 503, takes: 50 * time.Millisecond}},
			{"500 in batches", time.Second, 0, 10, step{status: 500}},
		} {
			if !chosen(6*i + j) {
				continue
			}
			if o.Preset == topology.PresetDelayLadder {
				o.RetryDelays = []time.Duration{c.delay, 2 * c.delay}
			} else if len(o.RetryDelays) == 0 {
				o.RetryDelay = c.delay
			}
			scene(t, o, c.name, func(t *testing.T, s *settings) {
				s.gather, s.wait = c.gather, 10*time.Millisecond
				s.add("first", 10, 0, 0, step{status: 200})
				s.add("bad", 200, 500*time.Millisecond, 0, c.bad)
				s.add("good", 400, 500*time.Millisecond+c.late, 100*time.Millisecond, step{status: 200})
				l := run(s, bug{}, logger())
				if j := l.judge(s); len(j.lines) > 0 {
					t.Error(report(j))
				}
				l.judgeWaits(t)
			})
		}
	}
}

// chosen reports whether a run of the tests takes the nth variant of a scene: one of so many, which the first seed
// chooses, or all of them.
func chosen(n int) bool { return *all || n%scenesPerRun == int(*first%scenesPerRun) }

// scene plays one in a topology, with the sidecar's default concurrency. It begins without messages.
func scene(t *testing.T, o topology.Options, name string, play func(*testing.T, *settings)) {
	t.Run(fmt.Sprintf("%s%s%v/%s", o.Preset, o.QueueType, o.RetryDelays, name), func(t *testing.T) {
		retries := 3
		if o.Service = "sim-orders"; o.MaxRetries == nil {
			o.MaxRetries = &retries
		}
		s := &settings{
			seed: 1, preset: o.Preset, version: model.V310, plan: must.Get(topology.Build(o))(t), mode: topology.ModeDeclare,
			concurrency: 10, prefetch: 20, gather: 1, latency: time.Millisecond, confirm: 2 * time.Millisecond,
			policy: retry.Policy{RequeueMin: time.Second, RequeueMax: 2 * time.Second},
		}
		if s.plan.DelaysItself() {
			s.version = model.V43
		}
		synctest.Test(t, func(t *testing.T) { play(t, s) })
	})
}

// add adds n messages.
func (s *settings) add(kind string, n int, after, every time.Duration, does step) {
	does.takes += 2 * time.Millisecond
	for i := range n {
		p := &parcel{
			id: fmt.Sprintf("%s%03d", kind, i), body: []byte(kind), after: after + time.Duration(i)*every, steps: []step{does},
		}
		p.sum = sha256.Sum256(p.body)
		s.messages = append(s.messages, p)
	}
}

// judgeWaits judges how long the good messages waited for their POST: all of them at the worst, and at the median the
// first 40, which came while there were only bad ones.
func (l *ledger) judgeWaits(t *testing.T) {
	t.Helper()
	var waits []time.Duration
	for _, id := range l.order {
		if strings.HasPrefix(id, "good") && len(l.receipts[id]) > 0 {
			waits = append(waits, l.receipts[id][0].at.Sub(l.sent[id]))
		}
	}
	worst := slices.Max(waits)
	first := slices.Sorted(slices.Values(waits[:40]))
	if median := first[len(first)/2]; median > medianWait || worst > longestWait {
		t.Errorf("good messages waited %v at the median and %v at the worst", median, worst)
	} else {
		t.Logf("%v at the median, %v at the worst", median, worst)
	}
}

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
			scene(t, o, fmt.Sprint(backlog), func(t *testing.T, s *settings) {
				s.add("waits", backlog, 0, 0, step{status: 200})
				s.add("comes", int(outage/time.Second), 0, time.Second, step{status: 200})
				began := time.Now()
				l := run(s, bug{dispatcher: failsUntil(began.Add(outage))}, logger())
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
		}
	}
}

// failsUntil is an app that answers 500 to everything until a time.
func failsUntil(end time.Time) func(consume.Dispatcher) consume.Dispatcher {
	return func(real consume.Dispatcher) consume.Dispatcher {
		return dispatcher(func(ctx context.Context, m *message.Message) message.Outcome {
			if time.Now().After(end) {
				return real.Dispatch(ctx, m)
			}
			time.Sleep(2 * time.Millisecond)
			return outcome(step{status: 500})
		})
	}
}

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
