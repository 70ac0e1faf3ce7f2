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
	w, err := q.open(ctx)
	if err != nil || w.ready == 0 {
		return w, err
	}
	ctx = context.WithoutCancel(ctx) // every requeue raises the delivery count
	count, limit, err := w.deliveryCount(ctx)
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	if count < min(careful, max(limit/2, 1)) {
		return w, nil
	}
	last := count >= max(limit/2, 1) // what is left is for operations that are killed
	err = q.recycle(ctx, w)
	switch {
	case err == nil:
	case last || w.s.Err() != nil:
		if last {
			err = fmt.Errorf("%w: the delivery limit of queue %q would soon drop its messages when they are requeued once "+
				"more, and its messages cannot be published again to begin their count anew: %w", ErrUnsafe, q.name, err)
		}
		// If no message could be moved, requeue no more than has been taken, even if the order is lost. Otherwise the moved
		// messages have a fresh count.
		w.exact = last && w.seen == 0
		return nil, errors.Join(err, w.close())
	default:
		// A user who may only read can still read, while the count is far from the limit.
		q.o.Logger.Warn("dead-letter queue not recycled", "queue", q.name, "error", err)
		if w.exact = false; w.seen == 0 {
			return w, nil
		}
	}
	if err = w.close(); err != nil {
		return nil, err
	}
	return q.open(ctx)
}

// deliveryCount returns how often the first message has been requeued, and the limit. That message is then the next
// one.
func (w *reader) deliveryCount(ctx context.Context) (count, limit int, err error) {
	if w.kept.Known && (!w.kept.Quorum || w.kept.Limit < 0 || w.kept.Limit == declare.Unlimited) {
		return 0, declare.Unlimited, nil
	}
	if err := w.awaitGuard(ctx); err != nil {
		return 0, 0, err
	}
	switch {
	case !w.kept.Known && w.kept.Quorum:
		limit = 1 // it may be that
	case w.kept.Named:
		limit = w.kept.Limit
	default:
		limit = defaultLimit
	}
	w.waiting[0].DecodeHeaders()
	return message.Deliveries(w.waiting[0].Headers), limit, nil
}

// recycle moves every message of w to the tail of its own queue, one after the other. An error with no message of w
// seen means that none can be moved.
func (q *Queue) recycle(ctx context.Context, w *reader) error {
	s, stream, err := q.stream(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if pub, fits := q.o.Plan.RestorePublication(&w.waiting[0].Delivery); fits {
		if err := stream.Try(ctx, pub); err != nil && !alone(err) {
			return err
		}
	}
	w.exact = true // a moved copy that is delivered again would be requeued at the end
	q.o.Logger.Info("dead-letter queue recycled", "reason", "delivery limit", "queue", q.name, "messages", w.ready)
	v := q.operate(w, Selection{})
	v.all = true
	v.act = func(m *Message) (func() error, error) {
		pub, fits := q.o.Plan.RestorePublication(&m.Properties)
		if !fits {
			return nil, errNoRoom
		}
		return send(stream, pub)
	}
	err = v.pass(ctx)
	if p := v.progress(); err == nil && p.Failed > 0 {
		err = fmt.Errorf("%d messages cannot be published again, see the log", p.Failed)
	}
	return err
}
