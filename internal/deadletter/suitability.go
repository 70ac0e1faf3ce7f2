package deadletter

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/topology/declare"
)

// checkSuitable reads how the queue handles requeued messages, and refuses a queue in which reading loses messages.
func (w *reader) checkSuitable(ctx context.Context) error {
	d, err := w.q.depth(ctx, w.s)
	if err != nil || d.Ready == 0 && w.ready == 0 {
		return err // a queue that is not there must not be declared
	}
	if d.Consumers > 0 && w.guard == nil {
		return nil // it is in use, and will be refused
	}
	w.asked = true
	if w.kept, err = declare.Keeping(ctx, w.s, w.q.name); err != nil {
		return err
	}
	switch {
	case !w.kept.Known:
		return w.checkUnknown(ctx)
	case w.kept.Vanishes:
		return fmt.Errorf("%w: queue %q is auto-delete: reading it would delete it, with its messages", ErrUnsafe, w.q.name)
	case w.kept.Single:
		return fmt.Errorf("%w: queue %q has x-single-active-consumer, which hides its messages from other consumers",
			ErrUnsafe, w.q.name)
	case w.kept.Named && w.kept.Limit == 0:
		return fmt.Errorf("%w: queue %q has a delivery limit of 0: every message that is read would be dropped", ErrUnsafe,
			w.q.name)
	}
	return nil
}

// checkUnknown is for a user who may not ask. What a quorum queue counts and when it drops is then unknown, so its
// messages must be publishable again before they are touched.
func (w *reader) checkUnknown(ctx context.Context) error {
	quorum, err := w.q.countsReturns(ctx)
	if err != nil {
		return err
	}
	if w.kept.Quorum = quorum; !quorum {
		w.kept.Known = w.s.Major() < 4 // newer brokers do not show it
		return nil
	}
	stream, stop, err := w.q.stream(ctx)
	if err != nil {
		return err
	}
	defer stop()
	pub, _ := w.q.o.Plan.RestorePublication(&amqp.Delivery{})
	if err = stream.Try(ctx, pub); errors.Is(err, broker.ErrRefused) {
		return fmt.Errorf("%w: every read queue %q counts towards a delivery limit that this user may not see, nor publish "+
			"its messages again to begin their count anew; let it configure the queue, or write to exchange %q: %w", ErrUnsafe,
			w.q.name, pub.Exchange, err)
	}
	return err
}

// countsReturns reports whether the queue is a quorum queue of a broker that counts requeues. Anyone who may
// read is refused by the refusal of a prefetch that holds for the whole channel, which costs the connection. Newer
// brokers refuse none, and do not count.
func (q *Queue) countsReturns(ctx context.Context) (bool, error) {
	s, err := q.dialer.Dial(ctx)
	if err != nil {
		return false, err
	}
	defer s.Close()
	ch, err := s.Channel(ctx)
	if err != nil {
		return false, err
	}
	err = s.Do(ctx, fmt.Sprintf("ask for the type of queue %q", q.name), func() error {
		if err := ch.Qos(1, 0, true); err != nil {
			return err
		}
		_, err := ch.Consume(q.name, "", false, false, false, false, nil)
		return err
	})
	if refusal, ok := errors.AsType[*amqp.Error](err); ok && refusal.Code == amqp.NotImplemented {
		return true, nil
	}
	return false, q.missing(err)
}
