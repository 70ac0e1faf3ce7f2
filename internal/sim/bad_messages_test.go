package sim

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sidecar/internal/message"
	"sidecar/internal/retry"
	"sidecar/internal/sim/model"
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
			t.Run(fmt.Sprintf("%s%s%v/%s", o.Preset, o.QueueType, o.RetryDelays, c.name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := behindBad(t, o, c.bad, c.late)
					s.gather, s.wait = c.gather, 10*time.Millisecond
					l := run(s, bug{}, logger())
					if j := l.judge(s); len(j.lines) > 0 {
						t.Error(report(j))
					}
					l.judgeWaits(t)
				})
			})
		}
	}
}

// chosen reports whether a run of the tests takes the nth variant of a scene: one of so many, which the first seed
// chooses, or all of them.
func chosen(n int) bool { return *all || n%scenesPerRun == int(*first%scenesPerRun) }

// behindBad are the settings of a run with the sidecar's default concurrency: good messages, a burst of bad ones, and
// more good ones at once or so much later.
func behindBad(t *testing.T, o topology.Options, bad step, late time.Duration) *settings {
	t.Helper()
	retries := 3
	if o.Service = "sim-orders"; o.MaxRetries == nil {
		o.MaxRetries = &retries
	}
	plan, err := topology.Build(o)
	if err != nil {
		t.Fatal(err)
	}
	s := &settings{
		seed: 1, preset: o.Preset, version: model.V310, plan: plan, mode: topology.ModeDeclare, concurrency: 10, prefetch: 20,
		gather: 1, latency: time.Millisecond, confirm: 2 * time.Millisecond,
		policy: retry.Policy{RequeueMin: time.Second, RequeueMax: 2 * time.Second},
	}
	if plan.DelaysItself() {
		s.version = model.V43
	}
	s.add("first", 10, 0, 0, step{status: 200})
	s.add("bad", 200, 500*time.Millisecond, 0, bad)
	s.add("good", 400, 500*time.Millisecond+late, 100*time.Millisecond, step{status: 200})
	return s
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
