package deadletter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/message"
)

// MaxCanary is how many messages a redrive may send first.
const MaxCanary = message.MaxCanary

// canaryTimeout is the default time for all verdicts together.
const canaryTimeout = time.Minute

// canary sends some messages first and waits for their verdicts. Each carries an address, and the sidecar that has
// settled it publishes its verdict there: the broker's direct reply-to, which needs no queue and no right to declare
// one, and ends with the connection. Queue depths would show a message that failed, but would not distinguish one that
// was consumed from one that still waits.
type canary struct {
	s        *broker.Session // of its own: an alarm blocks a connection that publishes, and the acks must go through
	size     int
	timeout  time.Duration
	deadline time.Time // zero until the wait begins
	address  string
	replies  <-chan amqp.Delivery
	closes   <-chan *amqp.Error // of the channel they come on
	sent     int

	mu  sync.Mutex
	p   CanaryProgress
	met map[string]bool // tokens of those whose verdict is in
}

// newCanary connects. Its session must be closed.
func (q *Queue) newCanary(ctx context.Context, r *Redrive) (_ *canary, err error) {
	s, err := q.dialer.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	c := &canary{s: s, size: r.Canary, timeout: r.CanaryTimeout, met: map[string]bool{}}
	if c.timeout <= 0 {
		c.timeout = canaryTimeout
	}
	for _, w := range q.o.Plan.Waits {
		if w.Route == q.o.Plan.Redrive {
			c.timeout += w.Delay // redriven messages go through a queue that delays them
		}
	}
	ch, err := s.Channel(ctx)
	if err != nil {
		return nil, err
	}
	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	c.closes = ch.NotifyClose(make(chan *amqp.Error, 1))
	err = s.Do(ctx, "ask for verdicts", func() (err error) {
		if c.replies, err = ch.Consume(message.DirectReply, "", true, false, false, false, nil); err != nil {
			return err
		}
		// The broker writes our address into every message that we publish on this channel with the name
		// amq.rabbitmq.reply-to. This message is routed to no queue, so it is returned, with the address.
		nowhere := fmt.Sprintf("sidecar.nowhere.%s.%016x", q.name, rand.Uint64()) // #nosec G404 -- a unique name, no secret
		return ch.PublishWithContext(ctx, "", cut(nowhere), true, false, amqp.Publishing{ReplyTo: message.DirectReply})
	})
	if err != nil {
		return nil, err
	}
	select {
	case back, ok := <-returns:
		if !ok { // without the right to publish to the default exchange
			return nil, fmt.Errorf("ask for verdicts: %w", c.replyError(s))
		}
		c.address = back.ReplyTo
		return c, nil
	case <-time.After(confirming):
		return nil, errors.New("ask for verdicts: no answer from the broker")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// cut makes a routing key of s that is not too long.
func cut(s string) string { return s[max(0, len(s)-255):] }

// next is the address that the next message carries; "" when enough have been sent.
func (c *canary) next(*Message) string {
	if c.full() {
		return ""
	}
	c.sent++
	c.mu.Lock()
	c.p.Sent = c.sent
	c.mu.Unlock()
	return message.ReplyTo(c.address, strconv.Itoa(c.sent))
}

// unsend takes the last next back.
func (c *canary) unsend() {
	c.sent--
	c.mu.Lock()
	c.p.Sent = c.sent
	c.mu.Unlock()
}

// full reports whether all have been sent and none has been waited for.
func (c *canary) full() bool { return c.sent >= c.size }

func (c *canary) progress() CanaryProgress {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.p
}

// awaitVerdicts waits for the verdicts on the canary messages. Afterwards the rest is sent.
func (v *operation) awaitVerdicts(ctx context.Context) error {
	c := v.canary
	if c.progress().Done {
		return nil
	}
	if c.deadline.IsZero() {
		c.deadline = time.Now().Add(c.timeout)
	}
	over := time.NewTimer(time.Until(c.deadline))
	defer over.Stop()
	var held <-chan time.Time
	if v.hold > 0 {
		t := time.NewTimer(max(v.hold-time.Since(v.w.since), time.Second))
		defer t.Stop()
		held = t.C
	}
	for c.progress().Good < c.sent {
		select {
		case d, ok := <-c.replies:
			if !ok {
				return fmt.Errorf("verdicts cannot be received any more: %w", c.replyError(c.s))
			}
			if err := c.onReply(&d); err != nil {
				return err
			}
		case <-v.failed:
			return nil
		case <-v.w.s.Done():
			return v.w.s.Err()
		case <-held:
			return errHoldLimit
		case <-over.C:
			p := c.progress()
			return fmt.Errorf("%w: %d of %d messages have no verdict after %v; is a sidecar of this service running, and not "+
				"paused?", ErrCanary, p.Sent-p.Good, p.Sent, c.timeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	c.mu.Lock()
	c.p.Done = true
	c.mu.Unlock()
	return nil
}

// replyError is why no more replies can arrive. It is never nil: without a known reason the redrive must stop, too.
func (c *canary) replyError(s *broker.Session) error {
	if e, ok := <-c.closes; ok && e.Server && e.Recover { // the library sends this before it closes replies, or closes it
		return &broker.RefusedError{Code: e.Code, Text: e.Reason}
	}
	return cmp.Or(s.Err(), broker.ErrDisconnected)
}

// onReply takes one verdict. There may be more than one for the same message.
func (c *canary) onReply(d *amqp.Delivery) error {
	n, err := strconv.Atoi(d.CorrelationId)
	if err != nil || n < 1 || n > c.sent {
		return nil // not an answer to anything we asked
	}
	var v message.VerdictReply
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return nil //nolint:nilerr // a reply to another redrive
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.p.Last = &v
	if v.Outcome == "ack" || v.Outcome == "discard" {
		if !c.met[d.CorrelationId] {
			c.met[d.CorrelationId] = true
			c.p.Good++
		}
		return nil
	}
	c.p.Bad++
	what := v.Reason
	if v.Status != 0 {
		what = fmt.Sprintf("%s, status %d", v.Reason, v.Status)
	}
	who := "a message without an id"
	if v.MessageID != "" {
		who = fmt.Sprintf("message %q", v.MessageID)
	}
	return fmt.Errorf("%w: %s failed again: %s (%s); the rest stays parked", ErrCanary, who, v.Outcome, what)
}
