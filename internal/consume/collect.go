package consume

import (
	"maps"
	"sync"
	"time"

	"sidecar/internal/message"
)

// batch is what goes out in one POST: messages of one URL, whose headers have been read.
type batch struct {
	attempts []attempt
	bytes    int64     // of their bodies
	since    time.Time // when the first of them was added

	messages []*message.Message // memory for the dispatcher's argument
}

var batches = sync.Pool{New: func() any { return new(batch) }}

func newBatch(now time.Time) *batch {
	b := batches.Get().(*batch)
	b.since = now
	return b
}

func (b *batch) add(a *attempt) {
	b.attempts = append(b.attempts, *a)
	b.bytes += int64(len(a.m.Body))
}

// newAlone returns a batch of one message. It has no part in the pool: each batch there has memory for many.
func newAlone(a *attempt, since time.Time) *batch {
	return &batch{attempts: []attempt{*a}, bytes: int64(len(a.m.Body)), since: since}
}

// recycle gives the memory of b back. Its messages have ended, or were copied elsewhere.
func (b *batch) recycle() {
	if cap(b.attempts) == 1 {
		return
	}
	clear(b.attempts)
	clear(b.messages)
	*b = batch{attempts: b.attempts[:0], messages: b.messages[:0]}
	batches.Put(b)
}

// collector gathers the messages of a session into batches. It does not wait: its caller asks for what is due.
type collector struct {
	limits Batch
	open   map[string]*batch // by URL: they take more messages
	full   []*batch          // they take no more, and go out as soon as a worker is free
}

func newCollector(limits Batch) *collector {
	return &collector{limits: limits, open: map[string]*batch{}}
}

// add puts a message into the batch of its URL, or into a batch of its own.
func (c *collector) add(a *attempt, url string, alone bool, now time.Time) {
	size := int64(len(a.m.Body))
	if alone || size > c.limits.Bytes {
		c.full = append(c.full, newAlone(a, now))
		return
	}
	b := c.open[url]
	if b != nil && b.bytes+size > c.limits.Bytes {
		c.close(url, b)
		b = nil
	}
	if b == nil {
		b = newBatch(now)
		c.open[url] = b
	}
	if b.add(a); len(b.attempts) >= c.limits.Size {
		c.close(url, b)
	}
}

func (c *collector) close(url string, b *batch) {
	delete(c.open, url)
	c.full = append(c.full, b)
}

// due returns the batch that has to go out next. Until it was taken, one that is not full takes more messages. Without
// one it is nil, and wait is the time until there is one; 0 if no message is here.
func (c *collector) due(now time.Time) (next *batch, wait time.Duration) {
	for _, b := range c.open {
		if next == nil || b.since.Before(next.since) {
			next = b
		}
	}
	if next != nil {
		wait = c.limits.Wait - now.Sub(next.since)
	}
	switch {
	case len(c.full) > 0 && (next == nil || wait > 0 || !next.since.Before(c.full[0].since)):
		return c.full[0], 0
	case wait > 0:
		return nil, wait
	}
	return next, 0
}

// take removes a batch that due returned. It may belong to another goroutine already, and is not read.
func (c *collector) take(b *batch) {
	if len(c.full) > 0 && c.full[0] == b {
		c.full[0] = nil
		c.full = c.full[1:]
		return
	}
	maps.DeleteFunc(c.open, func(_ string, open *batch) bool { return open == b })
}

// rest removes all batches.
func (c *collector) rest() []*batch {
	all := c.full
	for _, b := range c.open {
		all = append(all, b)
	}
	c.full, c.open = nil, map[string]*batch{}
	return all
}
