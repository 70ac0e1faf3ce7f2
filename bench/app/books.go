package main

import (
	"bytes"
	"context"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// plan is what a run expects of the app.
type plan struct {
	Expect   int           `json:"expect"`   // messages, numbered from 0
	Sleep    time.Duration `json:"sleep"`    // before each answer
	Hold     bool          `json:"hold"`     // answer nothing before release
	Latency  bool          `json:"latency"`  // bodies begin with the time they were published: keep how long they took
	Failures int           `json:"failures"` // each message is answered 409 so many times: keep how long it takes to return
	Item     string        `json:"item"`     // a body has it once for each message; "": each request is one message
}

// goal is what wait waits for.
type goal struct {
	Received int           `json:"received"`
	Inflight int           `json:"inflight"`
	Timeout  time.Duration `json:"timeout"`
}

// stats is what a run leaves behind. Times are nanoseconds since 1970.
type stats struct {
	Received    int64   `json:"received"`
	Distinct    int64   `json:"distinct"`
	Unknown     int64   `json:"unknown"` // without a number of this run
	Connections int64   `json:"connections"`
	MaxInflight int64   `json:"max_inflight"`
	Released    int64   `json:"released"`
	Held        int64   `json:"held"` // received before the release
	First       int64   `json:"first"`
	Last        int64   `json:"last"`
	Latencies   []int64 `json:"latencies,omitempty"` // sorted, ns from publish to arrival, or from a failure to the next one
}

// books are the counts of one run after the other. What every request touches is atomic; the rest is behind mu.
type books struct {
	received, unknown, inflight, maxInflight, connections atomic.Int64
	released, held, first, last                           atomic.Int64
	hold                                                  atomic.Pointer[chan struct{}] // nil: answer at once
	seen                                                  atomic.Pointer[numbers]
	sleep                                                 atomic.Int64
	latency                                               atomic.Bool
	wanted                                                atomic.Int64 // received that a caller waits for
	arrived                                               chan struct{}

	mu        sync.Mutex
	latencies []int64
}

// numbers are the messages of a run, with a bit for each that has come.
type numbers struct {
	expect   int64
	bits     []atomic.Uint64
	failures int64
	failed   []failure // by number; nil without failures
	item     []byte    // plan.Item
}

// failure is how often a message has failed, and when it did last.
type failure struct{ times, at atomic.Int64 }

func newBooks() *books {
	b := &books{arrived: make(chan struct{}, 1)}
	b.reset(plan{})
	return b
}

func (b *books) reset(p plan) {
	seen := &numbers{expect: int64(p.Expect), bits: make([]atomic.Uint64, p.Expect/64+1), failures: int64(p.Failures),
		item: []byte(p.Item)}
	if p.Failures > 0 {
		seen.failed = make([]failure, p.Expect)
	}
	b.seen.Store(seen)
	for _, n := range []*atomic.Int64{
		&b.received, &b.unknown, &b.maxInflight, &b.connections, &b.released, &b.held, &b.first, &b.last, &b.wanted,
	} {
		n.Store(0)
	}
	b.sleep.Store(int64(p.Sleep))
	b.latency.Store(p.Latency)
	b.mu.Lock()
	b.latencies = nil
	b.mu.Unlock()
	var gate *chan struct{}
	if p.Hold {
		held := make(chan struct{})
		gate = &held
	}
	if old := b.hold.Swap(gate); old != nil {
		close(*old) // whom a run that failed has left waiting
	}
}

func (b *books) release() {
	b.held.Store(b.received.Load())
	b.released.Store(time.Now().UnixNano())
	if gate := b.hold.Swap(nil); gate != nil {
		close(*gate)
	}
}

// begin takes a request that was read to its end into the books and returns when it arrived.
func (b *books) begin() (now int64) {
	now = time.Now().UnixNano()
	b.first.CompareAndSwap(0, now)
	b.last.Store(now)
	inflight := b.inflight.Add(1)
	for old := b.maxInflight.Load(); inflight > old && !b.maxInflight.CompareAndSwap(old, inflight); {
		old = b.maxInflight.Load()
	}
	return now
}

// arrive takes the request of one message into the books; number is negative when it has none.
func (b *books) arrive(number int64, published int64) {
	now := b.begin()
	if seen := b.seen.Load(); number < 0 || number >= seen.expect {
		b.unknown.Add(1)
	} else {
		seen.bits[number/64].Or(1 << (number % 64))
		if seen.failed != nil {
			if at := seen.failed[number].at.Load(); at > 0 {
				b.took(now - at)
			}
		}
	}
	if b.latency.Load() && published > 0 {
		b.took(now - published)
	}
	b.count(1)
}

// arriveAll takes the request of several messages into the books. It only counts them: what a message is would take
// longer to find out than everything else here.
func (b *books) arriveAll(body, item []byte) {
	now := b.begin()
	if b.latency.Load() {
		for _, rest, found := bytes.Cut(body, timeIs); found; _, rest, found = bytes.Cut(rest, timeIs) {
			b.took(now - digits(rest))
		}
	}
	b.count(int64(bytes.Count(body, item)))
}

// count wakes the caller of wait with the message that it waits for.
func (b *books) count(messages int64) {
	after := b.received.Add(messages)
	if wanted := b.wanted.Load(); after-messages < wanted && wanted <= after {
		select {
		case b.arrived <- struct{}{}:
		default:
		}
	}
}

func (b *books) took(ns int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.latencies = append(b.latencies, ns)
}

// fails reports whether this attempt of a message is one that fails.
func (b *books) fails(number int64) bool {
	seen := b.seen.Load()
	if seen.failed == nil || number < 0 || number >= seen.expect {
		return false
	}
	f := &seen.failed[number]
	f.at.Store(time.Now().UnixNano())
	return f.times.Add(1) <= seen.failures
}

// answerable returns when the answer to a request may go.
func (b *books) answerable() {
	if gate := b.hold.Load(); gate != nil {
		<-*gate
	}
	if d := b.sleep.Load(); d > 0 {
		time.Sleep(time.Duration(d))
	}
	b.inflight.Add(-1)
}

// wait returns when the goal is reached. Only a goal of requests in flight is polled for: nothing is measured then.
func (b *books) wait(ctx context.Context, g goal) error {
	ctx, cancel := context.WithTimeout(ctx, g.Timeout)
	defer cancel()
	b.wanted.Store(int64(g.Received))
	for b.received.Load() < int64(g.Received) || b.inflight.Load() < int64(g.Inflight) {
		var poll <-chan time.Time
		if g.Inflight > 0 {
			poll = time.After(5 * time.Millisecond)
		}
		select {
		case <-b.arrived:
		case <-poll:
		case <-ctx.Done():
			return fmt.Errorf("received %d of %d, %d of %d in flight", b.received.Load(), g.Received, b.inflight.Load(),
				g.Inflight)
		}
	}
	return nil
}

func (b *books) stats() stats {
	s := stats{
		Received: b.received.Load(), Unknown: b.unknown.Load(), Connections: b.connections.Load(),
		MaxInflight: b.maxInflight.Load(), Released: b.released.Load(), Held: b.held.Load(), First: b.first.Load(),
		Last: b.last.Load(),
	}
	seen := b.seen.Load()
	for i := range seen.bits {
		s.Distinct += int64(bits.OnesCount64(seen.bits[i].Load()))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Latencies = slices.Sorted(slices.Values(b.latencies))
	return s
}
