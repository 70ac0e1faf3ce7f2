package broker

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// enter adds a message that is about to be written: it may be answered before the write returns. It returns why the
// stream has ended, if it has.
func (c *Stream) enter(r *Receipt) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if why := cmp.Or(c.why, c.session.Err()); why != nil {
		c.slots <- struct{}{}
		return why
	}
	c.waits.Add(1)
	c.inflight = append(c.inflight, r)
	return nil
}

// confirmed is called by the goroutine that reads, for the message with this tag or all up to it. It returns false for
// a message that was never sent.
func (c *Stream) confirmed(tag uint64, multiple, ack bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why != nil || tag < c.first {
		return true
	}
	last := tag - c.first
	if last >= uint64(len(c.inflight)) {
		return false
	}
	from := last
	if multiple {
		from = 0
	}
	for i := from; i <= last; i++ {
		if r := c.inflight[i]; r != nil {
			c.inflight[i] = nil
			c.answer(r, c.verdict(r, ack))
		}
	}
	for len(c.inflight) > 0 && c.inflight[0] == nil {
		c.inflight, c.first = c.inflight[1:], c.first+1
	}
	return true
}

// verdict returns the error of a message that the broker has acked or nacked.
func (c *Stream) verdict(r *Receipt, ack bool) error {
	if !ack {
		now := time.Now()
		c.nacked.CompareAndSwap(nil, &now)
		return ErrNacked
	}
	return c.returnOf(r)
}

// answer ends the wait for a message, and makes room for another one. c.mu is locked.
func (c *Stream) answer(r *Receipt, err error) {
	r.answered, r.err = true, err
	if r.answer != nil {
		close(r.answer)
	}
	if !r.givenUp {
		c.slots <- struct{}{}
		c.waits.Done()
	}
}

// refused is called by the goroutine that reads when the broker closes the channel.
func (c *Stream) refused(code int, text string) {
	switch code {
	case amqp.ContentTooLarge, amqp.NoRoute, amqp.NoConsumers, amqp.AccessRefused, amqp.NotFound, amqp.ResourceLocked,
		amqp.PreconditionFailed:
		c.end(c.session.refusal(code, text))
	default:
		c.end(&amqp.Error{Code: code, Reason: text, Server: true})
	}
}

// end ends the stream. The outcome of all messages under way is unknown, unless the broker closed the channel and the
// window is one: then the refusal is about that message.
func (c *Stream) end(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why != nil {
		return
	}
	c.why = why
	if c.window > 1 || !errors.Is(why, ErrRefused) {
		why = fmt.Errorf("%w: %w", ErrUnknown, why)
	}
	for _, r := range c.inflight {
		if r != nil {
			c.answer(r, why)
		}
	}
	c.inflight, c.back = nil, nil
}

// reason returns why the channel or the session has ended; nil while it is open.
func (c *Stream) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}
