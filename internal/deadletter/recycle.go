package deadletter

import (
	"context"
	"errors"
	"fmt"

	"sidecar/internal/message"
	"sidecar/internal/topology/declare"
)

const (
	// careful is how often messages may have been requeued in a queue that has, or may have, a delivery limit: a policy
	// may set a lower one than the queue's own, which cannot be seen over AMQP.
	careful = 4
	// defaultLimit is the limit of a queue that names none, on brokers from RabbitMQ 4.0.
	defaultLimit = 20
)

// openRecycled opens a reader on a queue whose messages may safely be requeued. A quorum queue drops a message that was
// requeued more often than its delivery limit. The dead-letter queues that the sidecar declares have no limit, others
// may. There all messages are first moved once from the head to the tail of the same queue, so that they keep their
// order and their delivery count starts at zero. Reads have touched the head most often, so the head's count is an
// upper bound for all.
func (q *Queue) openRecycled(ctx context.Context) (*reader, error) {
	r, err := q.open(ctx)
	if err != nil || r.ready == 0 {
		return r, err
	}
	ctx = context.WithoutCancel(ctx) // every requeue raises the delivery count
	count, limit, err := r.deliveryCount(ctx)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	if count < min(careful, max(limit/2, 1)) {
		return r, nil
	}
	last := count >= max(limit/2, 1) // what is left is for operations that are killed
	err = q.recycle(ctx, r)
	switch {
	case err == nil:
	case last || r.s.Err() != nil:
		if last {
			err = fmt.Errorf("%w: further requeues may take the messages of queue %q beyond its delivery limit, and the broker "+
				"drops them then. They cannot be published again to reset their delivery count: %w", ErrUnsafe, q.name, err)
		}
		// If no message could be moved, requeue no more than has been taken, even if the order is lost. Otherwise the moved
		// messages have a fresh count.
		r.exact = last && r.seen == 0
		return nil, errors.Join(err, r.close())
	default:
		// A user who may only read can still read, while the count is far from the limit.
		q.o.Logger.Warn("dead-letter queue not recycled", "queue", q.name, "error", err)
		if r.exact = false; r.seen == 0 {
			return r, nil
		}
	}
	if err = r.close(); err != nil {
		return nil, err
	}
	return q.open(ctx)
}

// deliveryCount returns how often the first message has been requeued, and the limit. That message is then the next
// one.
func (r *reader) deliveryCount(ctx context.Context) (count, limit int, err error) {
	if r.kept.Known && (!r.kept.Quorum || r.kept.Limit < 0 || r.kept.Limit == declare.Unlimited) {
		return 0, declare.Unlimited, nil
	}
	if err := r.awaitGuard(ctx); err != nil {
		return 0, 0, err
	}
	switch {
	case !r.kept.Known && r.kept.Quorum:
		limit = 1 // it may be that
	case r.kept.Named:
		limit = r.kept.Limit
	default:
		limit = defaultLimit
	}
	r.waiting[0].DecodeHeaders()
	return message.Deliveries(r.waiting[0].Headers), limit, nil
}

// recycle moves every message of r to the tail of its own queue, one after the other. An error with no message of r
// seen means that none can be moved.
func (q *Queue) recycle(ctx context.Context, r *reader) error {
	s, stream, err := q.stream(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if pub, fits := q.plan().RestorePublication(&r.waiting[0].Delivery); fits {
		if err := s.Try(ctx, pub); err != nil && !onlyThisMessage(err) {
			endTry(s, err)
			return err
		}
	}
	r.exact = true // a moved copy that is delivered again would be requeued at the end
	q.o.Logger.Info("dead-letter queue recycled", "reason", "delivery limit", "queue", q.name, "messages", r.ready)
	o := q.operate(r, Selection{})
	o.all = true
	o.act = func(m *Message) (func() error, error) {
		pub, fits := q.plan().RestorePublication(&m.Properties)
		if !fits {
			return nil, errNoRoom
		}
		return send(s, stream, pub)
	}
	err = o.pass(ctx)
	if p := o.progress(); err == nil && p.Failed > 0 {
		err = fmt.Errorf("%d messages cannot be published again, see the log", p.Failed)
	}
	return err
}
