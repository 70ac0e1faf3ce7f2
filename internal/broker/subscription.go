package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
)

// Subscription is a channel of one session that consumes one queue. Starting and stopping leaves the channel, and with
// it every unsettled delivery, untouched.
type Subscription struct {
	session  *Session
	ch       *amqp.Channel
	queue    string
	prefetch int
	tag      string // of the running consumer; Start and Stop are for one goroutine

	once sync.Once
	done chan struct{}
	err  error // set before done is closed
}

// Subscribe opens a channel that will hold at most prefetch unsettled deliveries, 1 to 65535. It consumes nothing yet.
func (s *Session) Subscribe(ctx context.Context, queue string, prefetch int) (*Subscription, error) {
	if prefetch < 1 || prefetch > 65535 {
		return nil, fmt.Errorf("subscribe to queue %q: prefetch %d is not between 1 and 65535", queue, prefetch)
	}
	ch, err := s.Channel(ctx)
	if err != nil {
		return nil, fmt.Errorf("subscribe to queue %q: %w", queue, err)
	}
	sub := &Subscription{session: s, ch: ch, queue: queue, prefetch: prefetch, done: make(chan struct{})}
	// Buffered: the library delivers these from its reading goroutine.
	closes := ch.NotifyClose(make(chan *amqp.Error, 1))
	cancels := ch.NotifyCancel(make(chan string, 1))
	go sub.watch(closes, cancels)
	if err := s.Do(ctx, "set the prefetch count", func() error { return ch.Qos(prefetch, 0, false) }); err != nil {
		return nil, fmt.Errorf("subscribe to queue %q: %w", queue, err)
	}
	return sub, nil
}

// watch ends when the library has torn the channel down.
func (s *Subscription) watch(closes <-chan *amqp.Error, cancels <-chan string) {
	for {
		select {
		case tag, ok := <-cancels:
			if !ok {
				cancels = nil
				continue
			}
			s.end(fmt.Errorf("consume queue %q: consumer %q: %w", s.queue, tag, ErrCancelled))
		case e, ok := <-closes:
			switch {
			case !ok:
				s.end(fmt.Errorf("consume queue %q: %w", s.queue, ErrDisconnected))
				return
			case e.Server && e.Recover:
				s.end(fmt.Errorf("consume queue %q: %w", s.queue, &RefusedError{Code: e.Code, Text: e.Reason}))
			default:
				s.end(fmt.Errorf("consume queue %q: %w", s.queue, s.session.endError(e)))
			}
		}
	}
}

func (s *Subscription) end(err error) {
	s.once.Do(func() {
		s.err = err
		close(s.done)
	})
}

// Done is closed when no more deliveries will come and none can be relied on to be settled: the channel or the
// connection was closed, or the broker cancelled the consumer.
func (s *Subscription) Done() <-chan struct{} { return s.done }

// Err returns nil while the subscription is up, and why it ended afterwards.
func (s *Subscription) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Start begins to consume. What it returns ends after Stop or when the subscription ends; what it then still holds of
// an ended subscription the broker delivers again.
func (s *Subscription) Start(ctx context.Context) (*Deliveries, error) {
	tag, deliveries, err := s.consume(ctx, s.prefetch)
	if err != nil {
		return nil, err
	}
	s.tag = tag
	return deliveries, nil
}

func (s *Subscription) consume(ctx context.Context, prefetch int) (tag string, deliveries *Deliveries, err error) {
	// A tag is never used twice on a connection, on any channel: the intake identifies consumers by their tags alone.
	tag = fmt.Sprintf("sidecar-%d-%d", s.session.generation, s.session.consumers.Add(1))
	deliveries = amqpwire.NewDeliveries(prefetch)
	wire := s.session.wire
	wire.Consume(tag, deliveries) // before the broker can deliver
	var none <-chan amqp.Delivery
	err = s.session.Do(ctx, "consume", func() (err error) {
		none, err = s.ch.Consume(s.queue, tag, false, false, false, false, nil)
		return err
	})
	if err != nil {
		wire.Cancel(tag)
		deliveries.Drop()
		return "", nil, fmt.Errorf("consume queue %q: %w", s.queue, s.endError(err))
	}
	go func() {
		for range none { //nolint:revive // the library's own end of the consumer; its deliveries never come this way
		}
		wire.Cancel(tag)
	}()
	return tag, deliveries, nil
}

// Stop cancels the consumer and waits for the broker's answer: nothing new is delivered afterwards. Earlier deliveries
// drain through the channel that Start returned and may still be settled.
func (s *Subscription) Stop(ctx context.Context) error {
	if s.tag == "" {
		return nil
	}
	tag := s.tag
	s.tag = ""
	return s.cancel(ctx, tag)
}

func (s *Subscription) cancel(ctx context.Context, tag string) error {
	if err := s.session.Do(ctx, "cancel", func() error { return s.ch.Cancel(tag, false) }); err != nil {
		return fmt.Errorf("stop consuming queue %q: %w", s.queue, s.endError(err))
	}
	return nil
}

// Consumer is one of several consumers of a subscription, with a window of its own.
type Consumer struct {
	*Deliveries

	sub *Subscription
	tag string
}

// Consume begins another consumer, which will hold at most prefetch unsettled deliveries, 1 to 65535. It is for who
// wants to hold more than one window: the deliveries of all consumers of a subscription are settled on it, also those
// of consumers that have been stopped. It must not be mixed with Start. One goroutine at a time may call it.
func (s *Subscription) Consume(ctx context.Context, prefetch int) (*Consumer, error) {
	if prefetch < 1 || prefetch > 65535 {
		return nil, fmt.Errorf("consume queue %q: prefetch %d is not between 1 and 65535", s.queue, prefetch)
	}
	// The broker takes the count for consumers that begin from now on.
	if err := s.session.Do(ctx, "set the prefetch count", func() error {
		return s.ch.Qos(prefetch, 0, false)
	}); err != nil {
		return nil, fmt.Errorf("consume queue %q: %w", s.queue, s.endError(err))
	}
	tag, deliveries, err := s.consume(ctx, prefetch)
	if err != nil {
		return nil, err
	}
	return &Consumer{Deliveries: deliveries, sub: s, tag: tag}, nil
}

// Stop is Subscription.Stop for this consumer.
func (c *Consumer) Stop(ctx context.Context) error { return c.sub.cancel(ctx, c.tag) }

// Ack removes the delivery from the queue; multiple: and every unsettled one before it on this subscription.
func (s *Subscription) Ack(tag uint64, multiple bool) error {
	return s.settled("ack", s.ch.Ack(tag, multiple))
}

// Requeue returns the delivery to its queue. It is a nack and never basic.reject, which newer brokers count against the
// message's delivery limit.
func (s *Subscription) Requeue(tag uint64) error {
	return s.settled("requeue", s.ch.Nack(tag, false, true))
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
	return s.settled("requeue", err)
}

// Reject removes the delivery from its queue along the queue's dead-letter route; without a route, or when it leads to
// no queue, the message is lost.
func (s *Subscription) Reject(tag uint64) error {
	return s.settled("reject", s.ch.Nack(tag, false, false))
}

// settled turns an error of the library into one that says that the broker delivers the message again. A settlement has
// no answer: nil means it was written.
func (s *Subscription) settled(verb string, err error) error {
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
