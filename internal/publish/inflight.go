package publish

import "context"

// inflight bounds how many messages are under way at once. A request that finds no slot is answered busy at once: a queue here
// would only be another place where messages wait without being safe.
type inflight struct{ slots chan struct{} }

func newInflight(messages int) *inflight { return &inflight{slots: make(chan struct{}, messages)} }

// enter takes a slot.
func (f *inflight) enter() bool {
	select {
	case f.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

// await takes a slot as soon as one is free, unless ctx ends.
func (f *inflight) await(ctx context.Context) bool {
	select {
	case f.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (f *inflight) leave() { <-f.slots }

// full reports whether enter would fail now.
func (f *inflight) full() bool { return len(f.slots) == cap(f.slots) }

func (f *inflight) messages() int { return len(f.slots) }
