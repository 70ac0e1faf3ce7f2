package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
	"sidecar/internal/budget"
)

type (
	// Delivery is one received message.
	Delivery = amqpwire.Delivery
	// Deliveries are the received messages of a Consumer.
	Deliveries = amqpwire.Deliveries
	// Spool holds the bodies of large messages in files.
	Spool = amqpwire.Spool
)

// ErrNoMemory is the MissingWhy of a delivery that has lost its headers, too.
var ErrNoMemory = amqpwire.ErrNoMemory

// NewSpool returns a spool in dir that may use up to limit bytes of disk.
func NewSpool(dir string, limit int64) *Spool { return amqpwire.NewSpool(dir, limit) }

// Subscription is a channel of one session that consumes one queue. Consumers come and go and leave the channel, and
// with it every unsettled delivery, untouched: the deliveries of all of them are settled on it.
//
// It is done when no more deliveries will come and none can be relied on to be settled: the channel or the connection
// was closed, or the broker cancelled a consumer.
type Subscription struct {
	// Share is the memory of its deliveries, see amqpwire.Deliveries; nil: that of the connection. It must not change
	// after Consume.
	Share *budget.Account

	// Timeout is how long the broker waits for the settlement of a delivery before it takes the consumer away: on a quorum
	// queue, from RabbitMQ 4.3, where other queues refuse it; 0: the broker decides.
	Timeout time.Duration

	session *Session
	ch      *amqp.Channel
	queue   string
	lifetime
}

// Server is the broker's host:port of the URL that was dialled.
func (s *Subscription) Server() string { return s.session.server }

// Subscribe opens a channel for the queue. It consumes nothing yet.
func (s *Session) Subscribe(ctx context.Context, queue string) (*Subscription, error) {
	ch, err := s.Channel(ctx)
	if err != nil {
		return nil, fmt.Errorf("subscribe to queue %q: %w", queue, err)
	}
	sub := &Subscription{session: s, ch: ch, queue: queue, lifetime: newLifetime()}
	// Buffered: the library delivers these from its reading goroutine.
	closes := ch.NotifyClose(make(chan *amqp.Error, 1))
	cancels := ch.NotifyCancel(make(chan string, 1))
	go sub.watch(closes, cancels)
	return sub, nil
}

// watch ends when the library has torn the channel down.
func (s *Subscription) watch(closes <-chan *amqp.Error, cancels <-chan string) {
	for tag := range cancels {
		s.end(fmt.Errorf("consume queue %q: consumer %q: %w", s.queue, tag, ErrCancelled))
	}
	why := ErrDisconnected
	if e := <-closes; e != nil {
		why = s.session.endError(e)
	}
	s.end(fmt.Errorf("consume queue %q: %w", s.queue, why))
}

// Consumer is one consumer of a subscription, with a window of its own. Its Deliveries end after Stop or when the
// subscription ends; what an ended subscription still holds the broker delivers again.
type Consumer struct {
	*Deliveries

	sub *Subscription
	tag string
}

// Consume begins a consumer, which will hold at most prefetch unsettled deliveries, 1 to 65535. One goroutine at a time
// may call it. ErrUnavailable is wrapped when this call cost the session.
func (s *Subscription) Consume(ctx context.Context, prefetch int) (*Consumer, error) {
	c, err := s.consume(ctx, prefetch)
	if err != nil {
		if !errors.Is(err, ErrUnavailable) {
			err = s.endError(err)
		}
		return nil, fmt.Errorf("consume queue %q: %w", s.queue, err)
	}
	return c, nil
}

func (s *Subscription) consume(ctx context.Context, prefetch int) (*Consumer, error) {
	if prefetch < 1 || prefetch > 65535 {
		return nil, fmt.Errorf("prefetch %d is not between 1 and 65535", prefetch)
	}
	// The broker takes the count for consumers that begin from now on.
	if err := s.session.Do(ctx, "set the prefetch count", func() error {
		return s.ch.Qos(prefetch, 0, false)
	}); err != nil {
		return nil, err
	}
	// A tag is never used twice on a connection, on any channel: the intake identifies consumers by their tags alone.
	tag := fmt.Sprintf("sidecar-%d-%d", s.session.generation, s.session.consumers.Add(1))
	c := &Consumer{Deliveries: amqpwire.NewDeliveries(prefetch), sub: s, tag: tag}
	c.Share = s.Share
	wire := s.session.wire
	wire.Consume(tag, c.Deliveries) // before the broker can deliver
	none, err := s.begin(ctx, tag)
	if err != nil {
		wire.Cancel(tag)
		c.Drop()
		return nil, err
	}
	go func() {
		for range none { //nolint:revive // the library's own end of the consumer; its deliveries never come this way
		}
		wire.Cancel(tag)
	}()
	return c, nil
}

const consume = "consume" // the name of that call

// begin asks the broker for a consumer. The deliveries never come through the channel that it returns.
func (s *Subscription) begin(ctx context.Context, tag string) (none <-chan amqp.Delivery, err error) {
	s.session.beginning.Lock()
	defer s.session.beginning.Unlock()
	if err := s.session.Err(); err != nil {
		return nil, err
	}
	var args amqp.Table
	if s.Timeout > 0 && s.session.AtLeast(4, 3) {
		args = amqp.Table{"x-consumer-timeout": s.Timeout.Milliseconds()}
	}
	err = s.session.Do(ctx, consume, func() (err error) {
		none, err = s.ch.Consume(s.queue, tag, false, false, false, false, args)
		return err
	})
	var closed *amqp.Error
	ended := s.session.Err()
	var late *lateError
	if errors.As(ended, &closed) && closed.Code == amqp.InternalError || errors.As(ended, &late) && late.call == consume {
		err = fmt.Errorf("%w: %w", ErrUnavailable, ended)
	}
	return none, err
}

// Stop cancels the consumer and waits for the broker's answer: nothing new is delivered afterwards. Earlier deliveries
// can still be taken and settled.
func (c *Consumer) Stop(ctx context.Context) error {
	s := c.sub
	if err := s.session.Do(ctx, "cancel", func() error { return s.ch.Cancel(c.tag, false) }); err != nil {
		return fmt.Errorf("stop consuming queue %q: %w", s.queue, s.endError(err))
	}
	return nil
}

// Lost ends the subscription as if the broker had cancelled the consumer: it is called when the broker has no consumer
// any more and has not said so.
func (c *Consumer) Lost() {
	c.sub.end(fmt.Errorf("consume queue %q: consumer %q: %w: it did not say so, but messages wait and the queue has no "+
		"consumer", c.sub.queue, c.tag, ErrCancelled))
}

// Close closes the channel, and leaves the session to others: what is not settled returns to its place in the queue.
// A broker that does not answer that in time costs the session.
func (s *Subscription) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.session.options.closeTimeout)
	defer cancel()
	err := s.session.Do(ctx, "close the channel", s.ch.Close)
	if errors.Is(err, amqp.ErrClosed) || errors.Is(err, ErrDisconnected) {
		err = nil
	}
	return s.settleError("close the channel", err)
}

// Ack removes the delivery from the queue; multiple: and every unsettled one before it on this subscription.
func (s *Subscription) Ack(tag uint64, multiple bool) error {
	return s.settleError("ack", s.ch.Ack(tag, multiple))
}

// Requeue returns the delivery to its queue. It is a nack and never basic.reject, which newer brokers count against the
// message's delivery limit.
func (s *Subscription) Requeue(tag uint64) error {
	return s.settleError("requeue", s.ch.Nack(tag, false, true))
}

// RequeueUpTo returns the unsettled delivery tag and every unsettled one before it to the queue, and waits until the
// broker has read that; 0 is all there are. No consumer may be running: it would get them again.
func (s *Subscription) RequeueUpTo(ctx context.Context, tag uint64) error {
	err := s.session.Do(ctx, "requeue", func() error {
		if err := s.ch.Nack(tag, true, true); err != nil {
			return err
		}
		return s.ch.Qos(1, 0, false) // a nack has no answer: the next answer comes after it
	})
	return s.settleError("requeue", err)
}

// Delay returns the delivery to its queue by basic.reject. A queue that delays messages itself counts that and keeps
// the message for a while; any other delivers it again at once.
func (s *Subscription) Delay(tag uint64) error {
	return s.settleError("delay", s.ch.Reject(tag, true))
}

// Reject removes the delivery from its queue along the queue's dead-letter route; without a route, or when it leads to
// no queue, the message is lost.
func (s *Subscription) Reject(tag uint64) error {
	return s.settleError("reject", s.ch.Nack(tag, false, false))
}

// settleError turns an error of the library into one that says that the broker delivers the message again. A settlement
// has no answer: nil means it was written.
func (s *Subscription) settleError(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s on queue %q: %w", verb, s.queue, s.endError(s.session.endError(err)))
}

// endError prefers the reason why the subscription ended, and makes every failure of a closed channel an
// ErrDisconnected.
func (s *Subscription) endError(err error) error {
	if ended := s.Err(); ended != nil {
		err = ended
	}
	if errors.Is(err, amqp.ErrClosed) && !errors.Is(err, ErrDisconnected) {
		return fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
	return err
}
