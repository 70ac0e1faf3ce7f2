package publish

import (
	"context"
	"sync/atomic"
	"time"
)

// inflight bounds what is held for the app at once, in messages and in bytes of their bodies. A request that finds no room is
// told so at once: a queue here would only be another place where messages wait without being safe.
type inflight struct {
	slots    chan struct{} // held by the messages
	bytes    atomic.Int64
	maxBytes int64
}

func newInflight(messages int, bytes int64) *inflight {
	return &inflight{slots: make(chan struct{}, messages), maxBytes: bytes}
}

// enter takes room for a message.
func (f *inflight) enter() bool {
	select {
	case f.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

// await takes room for a message as soon as there is some, unless ctx ends.
func (f *inflight) await(ctx context.Context) bool {
	select {
	case f.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (f *inflight) leave() { <-f.slots }

// take takes room for n bytes.
func (f *inflight) take(n int64) bool {
	if f.bytes.Add(n) <= f.maxBytes {
		return true
	}
	f.bytes.Add(-n)
	return false
}

// takeLater takes room for n bytes as soon as there is some, unless ctx ends. It is for batches, which are few.
func (f *inflight) takeLater(ctx context.Context, n int64) bool {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for {
		if f.take(n) {
			return true
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return false
		}
	}
}

func (f *inflight) give(n int64) { f.bytes.Add(-n) }

func (f *inflight) messages() int { return len(f.slots) }
