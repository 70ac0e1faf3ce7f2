package publish

import "sync"

// inflight bounds what is held for the app at once, in messages and in bytes of their bodies. Whoever finds no room is told
// so at once: a queue here would only be another place where messages wait without being safe.
type inflight struct {
	mu           sync.Mutex
	count, bytes int64
	maxCount     int64
	maxBytes     int64
}

func newInflight(messages int, bytes int64) *inflight {
	return &inflight{maxCount: int64(messages), maxBytes: bytes}
}

// enter takes room for a message.
func (f *inflight) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count >= f.maxCount {
		return false
	}
	f.count++
	return true
}

func (f *inflight) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count--
}

// take takes room for n bytes.
func (f *inflight) take(n int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bytes+n > f.maxBytes {
		return false
	}
	f.bytes += n
	return true
}

func (f *inflight) give(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bytes -= n
}

func (f *inflight) messages() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}
