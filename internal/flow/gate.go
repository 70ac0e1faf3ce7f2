// Package flow decides when to consume at all: not before the app answers, not while it is down or fails everything,
// not during a manual pause. It does not judge single messages, settle them or use the broker: the consumer asks it and
// obeys.
package flow

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Reason says why nothing is taken. The set is closed: it is a metric label.
type Reason string

// The reasons to hold the gate shut.
const (
	AppDown    Reason = "app_down"    // the app does not answer, or has not answered yet, or its health check not with 2xx
	Breaker    Reason = "breaker"     // the app fails everything
	RetryAfter Reason = "retry_after" // the app asked for a pause
	Operator   Reason = "operator"    // POST /pause
	Topology   Reason = "topology"    // a retried or parked message would be lost
	Publishing Reason = "publishing"  // every message in flight waits for a park or retry publish that keeps failing

	AppRejectsAll Reason = "app_rejects_all" // the app refuses every message: URL, path or token is wrong

	// Shown, while the gate stays open.
	Order Reason = "order" // every message in flight waits for a failed one
	Queue Reason = "queue" // the broker does not let the sidecar consume the queue: each try may end that
)

// Reasons lists the closed set.
var Reasons = []Reason{AppDown, Breaker, RetryAfter, Operator, Topology, Publishing, Order, Queue, AppRejectsAll}

// Hold is one reason that currently keeps the gate shut, or is shown while it is open.
type Hold struct {
	Reason Reason    `json:"reason"`
	Detail string    `json:"detail,omitempty"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"` // zero when no time is set

	shown bool        // the gate stays open
	timer *time.Timer // fires at Until
}

// Gate is open when no reason holds it. Any goroutine may hold or lift; one consumer follows Changed.
type Gate struct {
	open atomic.Bool

	mu      sync.Mutex
	holds   map[Reason]*Hold
	changed chan struct{}
}

func newGate() *Gate {
	g := &Gate{holds: make(map[Reason]*Hold), changed: make(chan struct{})}
	g.open.Store(true)
	return g
}

// Open reports whether messages may be taken.
func (g *Gate) Open() bool { return g.open.Load() }

// Changed returns a channel that is closed at the next change. Take it before reading the state it guards.
func (g *Gate) Changed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

// Hold shuts the gate for r until Lift(r). It reports whether r was not held before.
func (g *Gate) Hold(r Reason, detail string) bool {
	return g.hold(Hold{Reason: r, Detail: detail}, 0, nil)
}

// Show makes r, which does not hold the gate shut, a reason that leaves the gate as it is until Lift(r). It reports
// whether r was not shown before.
func (g *Gate) Show(r Reason, detail string) bool {
	return g.hold(Hold{Reason: r, Detail: detail, shown: true}, 0, nil)
}

// HoldFor shuts the gate for r for d, without an end for 0, and calls lifted (may be nil) right before it opens, while
// it is locked: lifted must not use the gate. A hold that already lasts longer wins. It reports whether r was not held
// before.
func (g *Gate) HoldFor(r Reason, d time.Duration, detail string, lifted func()) bool {
	return g.hold(Hold{Reason: r, Detail: detail}, d, lifted)
}

func (g *Gate) hold(wanted Hold, d time.Duration, lifted func()) bool {
	var until time.Time
	if d > 0 {
		until = time.Now().Add(d)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.holds[wanted.Reason]
	if h != nil && d > 0 && (h.Until.IsZero() || h.Until.After(until)) {
		return false
	}
	fresh := h == nil
	if fresh {
		wanted.Since = time.Now()
		h = &wanted
		g.holds[h.Reason] = h
		g.announce()
	}
	h.stop()
	h.Detail, h.Until = wanted.Detail, until
	if d > 0 {
		h.timer = time.AfterFunc(d, func() { g.expire(h, until, lifted) })
	}
	return fresh
}

// expire ends a timed hold, unless it has been lifted or prolonged meanwhile.
func (g *Gate) expire(h *Hold, until time.Time, lifted func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holds[h.Reason] != h || !h.Until.Equal(until) {
		return
	}
	if lifted != nil {
		lifted()
	}
	delete(g.holds, h.Reason)
	g.announce()
}

// Lift takes r away. It reports whether r was held.
func (g *Gate) Lift(r Reason) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.holds[r]
	if h == nil {
		return false
	}
	h.stop()
	delete(g.holds, r)
	g.announce()
	return true
}

// Has reports whether r is a reason now, which holds the gate shut or is only shown.
func (g *Gate) Has(r Reason) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.holds[r] != nil
}

// Holds returns what keeps the gate shut, oldest first.
func (g *Gate) Holds() []Hold {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]Hold, 0, len(g.holds))
	for _, h := range g.holds {
		out = append(out, *h)
	}
	slices.SortFunc(out, func(a, b Hold) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

// stop ends all timers, so that nothing fires after the flow has ended.
func (g *Gate) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range g.holds {
		h.stop()
	}
}

// announce publishes the state and closes the channel of Changed. The caller holds mu.
func (g *Gate) announce() {
	g.open.Store(!slices.ContainsFunc(slices.Collect(maps.Values(g.holds)), func(h *Hold) bool { return !h.shown }))
	close(g.changed)
	g.changed = make(chan struct{})
}

// Nudge closes the channel of Changed although the gate has not changed.
func (g *Gate) Nudge() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.announce()
}

func (h *Hold) stop() {
	if h.timer != nil {
		h.timer.Stop()
	}
}
