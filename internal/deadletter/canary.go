package deadletter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/broker"
	"sidecar/internal/message"
)

// canaryTimeout is the default time for all verdicts together.
const canaryTimeout = time.Minute

// canary sends some messages first and waits for their verdicts. Each carries an address, and the sidecar that has
// settled it publishes its verdict there: the broker's direct reply-to, which needs no queue and no right to declare
// one, and ends with the connection. Queue depths would show a message that failed, but would not distinguish one that
// was consumed from one that still waits.
type canary struct {
	s        *broker.Session // which publishes
	size     int
	timeout  time.Duration
	deadline time.Time // zero until the wait begins
	address  string
	replies  <-chan amqp.Delivery
	closes   <-chan *amqp.Error // of the channel they come on
	good     map[string]bool    // tokens of the messages with a good verdict
}

// newCanary asks for an address. The broker writes it into every message that is published on the channel with the name
// amq.rabbitmq.reply-to. The message below is routed to no queue, so it is returned, with the address.
func (q *Queue) newCanary(ctx context.Context, s *broker.Session, r *Redrive) (*canary, error) {
	c := &canary{s: s, size: r.Canary, timeout: cmp.Or(r.CanaryTimeout, canaryTimeout), good: map[string]bool{}}
	for _, w := range q.plan().Waits {
		if w.Route == q.plan().Redrive {
			c.timeout += w.Delay // redriven messages go through a queue that delays them
		}
	}
	ch, err := s.Channel(ctx)
	if err != nil {
		return nil, err
	}
	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	c.closes = ch.NotifyClose(make(chan *amqp.Error, 1))
	err = s.Do(ctx, "consume "+message.DirectReply, func() (err error) {
		if c.replies, err = ch.Consume(message.DirectReply, "", true, false, false, false, nil); err != nil {
			return err
		}
		nowhere := fmt.Sprintf("sidecar.nowhere.%s.%016x", q.name, rand.Uint64()) // #nosec G404 -- a unique name, no secret
		return ch.PublishWithContext(ctx, "", lastBytes(nowhere), true, false, amqp.Publishing{ReplyTo: message.DirectReply})
	})
	if err != nil {
		return nil, err
	}
	select {
	case back, ok := <-returns:
		if !ok { // without the right to publish to the default exchange
			return nil, c.replyError()
		}
		c.address = back.ReplyTo
		return c, nil
	case <-time.After(confirming):
		return nil, errors.New("no answer from the broker")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// lastBytes returns the end of s, as much as fits a routing key or a queue name: the end makes these names unique.
func lastBytes(s string) string { return s[max(0, len(s)-amqpvalue.ShortMax):] }

// awaitVerdicts waits for the verdicts on the canary messages. Afterwards the rest is sent.
func (o *operation) awaitVerdicts(ctx context.Context) error {
	c := o.canary
	if c.deadline.IsZero() {
		c.deadline = time.Now().Add(c.timeout)
	}
	over := time.After(time.Until(c.deadline))
	for o.p.Canary.Good < o.p.Canary.Sent {
		select {
		case d, ok := <-c.replies:
			if !ok {
				return fmt.Errorf("verdicts cannot be received any more: %w", c.replyError())
			}
			if err := o.onReply(&d); err != nil {
				return err
			}
		case <-o.failed.Done():
			return context.Cause(o.failed)
		case <-o.reader.s.Done():
			return o.reader.s.Err()
		case <-over:
			return fmt.Errorf("%w: %d of %d messages have no verdict after %v; is a sidecar of this service running, and not "+
				"paused?", ErrCanary, o.p.Canary.Sent-o.p.Canary.Good, o.p.Canary.Sent, c.timeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	o.add(func(p *Progress) { p.Canary.Done = true })
	o.canary = nil
	return nil
}

// replyError is why no more replies can arrive. It is never nil: without a known reason the redrive must stop, too.
func (c *canary) replyError() error {
	if e, ok := <-c.closes; ok && e.Server && e.Recover { // the library sends this before it closes replies, or closes it
		return &broker.RefusedError{Code: e.Code, Text: e.Reason}
	}
	return cmp.Or(c.s.Err(), broker.ErrDisconnected)
}

// onReply takes one verdict. There may be more than one for the same message.
func (o *operation) onReply(d *amqp.Delivery) error {
	n, _ := strconv.Atoi(d.CorrelationId)
	if n < 1 || n > o.p.Canary.Sent {
		return nil // not an answer to anything we asked
	}
	var verdict message.VerdictReply
	if err := json.Unmarshal(d.Body, &verdict); err != nil {
		return nil //nolint:nilerr // a reply to another redrive
	}
	good := verdict.Outcome == "ack" || verdict.Outcome == "discard"
	if good {
		o.canary.good[d.CorrelationId] = true
	}
	o.add(func(p *Progress) {
		p.Canary.Last, p.Canary.Good = &verdict, len(o.canary.good)
		if !good {
			p.Canary.Bad++
		}
	})
	if good {
		return nil
	}
	what := verdict.Reason
	if verdict.Status != 0 {
		what = fmt.Sprintf("%s, status %d", verdict.Reason, verdict.Status)
	}
	who := "a message without an id"
	if verdict.MessageID != "" {
		who = fmt.Sprintf("message %q", verdict.MessageID)
	}
	return fmt.Errorf("%w: %s failed again: %s (%s); the rest stays parked", ErrCanary, who, verdict.Outcome, what)
}
