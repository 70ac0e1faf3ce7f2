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
// order and their delivery count starts at zero. A refusal would not help: only a delivered message has the count, and
// each refusal would count once more.
func (q *Queue) openRecycled(ctx context.Context) (*reader, error) {
	r, err := q.open(ctx)
	if err != nil || r.ready == 0 {
		return r, err
	}
	ctx = context.WithoutCancel(ctx) // every requeue raises the delivery count
	due, err := r.mustRecycle(ctx)
	if err == nil && !due {
		return r, nil
	}
	if err == nil {
		r.exact = true // a moved copy that is delivered again would be requeued at the end
		err = q.recycle(ctx, r)
		r.exact = err == nil || r.seen == 0 // requeue no more than was taken if no message could be moved
	}
	if err = errors.Join(err, r.close()); err != nil {
		return nil, err
	}
	return q.open(ctx)
}

// mustRecycle reports whether the first message was requeued so often that the next reads may be too many. Reads have
// touched the head most often, so its count is an upper bound for all. That message is then the next one.
func (r *reader) mustRecycle(ctx context.Context) (bool, error) {
	limit := defaultLimit
	if r.kept.Named {
		limit = r.kept.Limit
	}
	if r.kept.Known && !r.kept.Quorum || limit < 0 || limit == declare.Unlimited {
		return false, nil
	}
	if err := r.awaitGuard(ctx); err != nil {
		return false, err
	}
	r.waiting[0].DecodeHeaders()
	return message.Deliveries(r.waiting[0].Headers) >= min(careful, max(limit/2, 1)), nil
}

// recycle moves every message of r to the tail of its own queue, one after the other.
func (q *Queue) recycle(ctx context.Context, r *reader) error {
	s, err := q.sender(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	q.o.Logger.Info("dead-letter queue recycled", "reason", "delivery limit", "queue", q.name, "messages", r.ready)
	o := q.operate(r, Selection{})
	o.all = true
	o.act = func(m *Message) (func() error, error) {
		pub, fits := q.plan().RestorePublication(&m.Properties)
		if !fits {
			return nil, errNoRoom
		}
		return s.send(pub)
	}
	err = o.pass(ctx)
	if p := o.progress(); err == nil && p.Failed > 0 {
		err = fmt.Errorf("%d messages cannot be published again, see the log", p.Failed)
	}
	if err != nil {
		err = fmt.Errorf("%w: further requeues may take the messages of queue %q beyond its delivery limit, and the broker "+
			"drops them then. They cannot be published again to reset their delivery count; declare the queue with "+
			"x-delivery-limit %d, or grant what is missing: %w", ErrUnsafe, q.name, declare.Unlimited, err)
	}
	return err
}
