package consume

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"sidecar/internal/amqpwire"
	"sidecar/internal/memory"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// TestWindowNeverPassesAnUnfinishedTag finishes random tags in random order by random means and checks every ack the
// window proposes against a plain model of what the broker holds.
func TestWindowNeverPassesAnUnfinishedTag(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		prefetch := 1 + r.IntN(200)
		w := newWindow(prefetch)
		outstanding := map[uint64]bool{} // held by the broker as unacked
		open := []uint64{}               // not finished yet
		finishedTags := map[uint64]bool{}
		next := uint64(1)
		stuck := uint64(r.IntN(2)) // with 1, tag 1 stays open to the end
		settle := func(f ending) {
			if !outstanding[f.tag] || !finishedTags[f.tag] {
				t.Fatalf("seed %d: acked tag %d which is not finished and outstanding", seed, f.tag)
			}
			delete(outstanding, f.tag)
		}
		for range 1000 {
			for len(outstanding) < prefetch {
				outstanding[next], open, next = true, append(open, next), next+1
			}
			if len(open) > int(stuck) {
				i := int(stuck) + r.IntN(len(open)-int(stuck))
				tag := open[i]
				open = slices.Delete(open, i, i+1)
				finishedTags[tag] = true
				if r.IntN(4) == 0 { // rejected: settled at once
					delete(outstanding, tag)
					w.finish(tag)
				} else {
					w.ack(ending{tag: tag})
				}
			}
			if r.IntN(3) != 0 && len(open) > int(stuck) {
				continue
			}
			last, taken := w.prefix()
			if len(taken) > 1 {
				for tag := range outstanding {
					if tag <= last && !finishedTags[tag] {
						t.Fatalf("seed %d: ack up to %d passes over unfinished %d", seed, last, tag)
					}
				}
			}
			if len(taken) > 0 && !outstanding[last] {
				t.Fatalf("seed %d: ack of %d which the broker no longer holds", seed, last)
			}
			for _, f := range slices.Clone(taken) {
				settle(f)
			}
			switch {
			case len(open) == int(stuck):
				for _, f := range slices.Clone(w.behind(0)) {
					settle(f)
				}
			case w.crowded():
				for _, f := range slices.Clone(w.excess()) {
					settle(f)
				}
				if w.crowded() {
					t.Fatalf("seed %d: %d of %d still wait", seed, len(w.pending), prefetch)
				}
			}
		}
		for _, tag := range open {
			w.finish(tag)
		}
		w.advance()
		if w.head != next || len(w.words) > 1 {
			t.Fatalf("seed %d: all %d tags are finished, head %d, %d words kept", seed, next-1, w.head, len(w.words))
		}
	}
}

// TestCrowdedWindowKeepsHalf: of what waits behind the head, the oldest leave singly when there is no room. The others
// leave with the head, in one frame.
func TestCrowdedWindowKeepsHalf(t *testing.T) {
	t.Parallel()
	a := &recording{}
	s := newSettler(a, 8, newMetrics(prometheus.NewRegistry(), &Consumer{memory: memory.New(nil, nil)}), memory.New(nil, nil).Session(100))
	s.timer.Stop()
	for _, tag := range []uint64{7, 3, 8, 6, 2, 5} {
		s.take(ending{tag: tag, final: topology.FinalAck})
	}
	if s.flush(); !slices.Equal(a.acks, []acked{{2, false}, {3, false}}) || !s.armed {
		t.Errorf("acks %v, want those of 2 and 3; the clock runs: %t", a.acks, s.armed)
	}
	s.take(ending{tag: 1, final: topology.FinalAck})
	s.take(ending{tag: 4, final: topology.FinalAck})
	if s.flush(); a.last() != (acked{8, true}) || len(s.window.pending) != 0 || s.armed {
		t.Errorf("acks %v, %d wait; the clock runs: %t", a.acks, len(s.window.pending), s.armed)
	}
}

type acked struct {
	tag      uint64
	multiple bool
}

// In order acks that leave singly leave in the order of their tags, and nothing is given back by a frame.
func TestSettlerInOrder(t *testing.T) {
	t.Parallel()
	a := &recording{}
	s := newSettler(a, 1000, newMetrics(prometheus.NewRegistry(), &Consumer{memory: memory.New(nil, nil)}), memory.New(nil, nil).Session(100))
	s.ordered = true
	s.take(ending{tag: 1, action: message.Release, reason: message.ReasonAppDown, final: topology.FinalRequeue})
	for _, tag := range []uint64{5, 3, 2, 4} {
		s.take(ending{tag: tag, final: topology.FinalAck})
	}
	s.flushPrefix()
	s.flushBehind(0)
	if want := []acked{{2, false}, {3, false}, {4, false}, {5, false}}; !slices.Equal(a.acks, want) || a.requeued != 0 {
		t.Errorf("acks %v, %d requeued; want %v", a.acks, a.requeued, want)
	}
}

// recording settles into a list.
type recording struct {
	mu       sync.Mutex
	acks     []acked
	requeued int
}

func (r *recording) Ack(tag uint64, multiple bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acks = append(r.acks, acked{tag, multiple})
	return nil
}
func (r *recording) Requeue(uint64) error { r.requeued++; return nil }
func (r *recording) Reject(uint64) error  { return nil }
func (r *recording) Delay(uint64) error   { return nil }
func (r *recording) last() acked {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.acks) == 0 {
		return acked{}
	}
	return r.acks[len(r.acks)-1]
}

// TestRampIsKept: while the limit is below the workers, a delivery waits until one in flight is finished.
func TestRampIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(benchOptions(t, 4))
		c.counts.posts.Store(int64(c.o.Flow.Limit()))
		r := &session{c: c, leaving: context.Background(), plan: func() *topology.Plan { return c.o.Plan }, done: make(chan struct{}), memory: c.memory.Session(1)}
		r.settler = newSettler(&counting{}, 1, c.metrics, r.memory)
		c.background.Go(r.settler.run)
		deliveries := amqpwire.NewDeliveries(0)
		deliveries.Add(benchDelivery(1, nil, time.Now()))
		pumped := make(chan error, 1)
		go func() { err := r.take(deliveries); r.leftover(); pumped <- err }()
		wantHandled := func(want float64) {
			t.Helper()
			synctest.Wait()
			if n := testutil.ToFloat64(c.metrics.settled[message.Ack][message.ReasonSuccess]); n != want {
				t.Errorf("%v handled, %d in flight, the limit is %d; want %v", n, c.Inflight(), c.o.Flow.Limit(), want)
			}
		}
		wantHandled(0)
		c.counts.posts.Add(-1)
		c.freed <- struct{}{}
		wantHandled(1)
		c.Stop()
		if err := <-pumped; !errors.Is(err, errStopping) {
			t.Error(err)
		}
		r.close()
		c.Drain(t.Context())
	})
}
