package publish

import "context"

// slots bounds how many calls run at once. Messages are not queued: they would wait in another place where they are not
// safe.
type slots chan struct{}

// enter takes a slot if one is free.
func (s slots) enter() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

// await takes a slot as soon as one is free. It returns false if ctx ends before.
func (s slots) await(ctx context.Context) bool {
	select {
	case s <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s slots) leave() { <-s }

// full reports whether enter would fail now.
func (s slots) full() bool { return len(s) == cap(s) }
