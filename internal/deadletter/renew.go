package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sidecar/internal/message"
	"sidecar/internal/topology"
)

const (
	// careful is how often messages may have been given back to a queue that has, or may have, a delivery limit.
	careful = 10
	// assumedLimit is taken for a limit that nobody knows: brokers from RabbitMQ 4.0 give it to a queue that names none.
	assumedLimit = 20
)

// fresh opens a walk on a queue whose messages may be given back. A quorum queue drops a message that has been given back
// more often than its delivery limit says; the dead-letter queues that the sidecar declares have none, others may. There
// the messages are moved round once, from the head to the tail of the same queue and all of them, so that they keep their
// order and their count begins anew. The head is what looks have touched most often, so it tells for all.
func (q *Queue) fresh(ctx context.Context) (*walk, error) {
	w, err := q.open(ctx)
	if err != nil || w.ready == 0 {
		return w, err
	}
	worn, last, err := w.worn(ctx)
	if err == nil && !worn {
		return w, nil
	}
	if err == nil {
		if err = q.renew(ctx, w); err != nil {
			w.unfinished()
		}
		if err != nil && !last {
			// Who may only read can still look, for as long as it does no harm.
			q.o.Logger.Warn("dead-letter queue not renewed", "queue", q.name, "error", err)
			err = nil
		}
	}
	if err = errors.Join(err, w.close()); err != nil {
		return nil, err
	}
	return q.open(ctx)
}

// unfinished makes a walk that was to move everything one that gives everything back to its place.
func (w *walk) unfinished() {
	w.exact = false
	if w.window == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	_ = w.window.Stop(ctx) // most likely it has been; a session that is lost needs none
	w.collect(w.window)
	w.window = nil
}

// worn looks at the first message, which then waits to be next. last: giving back once more may be too often.
func (w *walk) worn(ctx context.Context) (worn, last bool, err error) {
	if w.kept.Known && (!w.kept.Quorum || w.kept.Limit == topology.Unlimited) {
		return false, false, nil
	}
	for quiet := time.Duration(0); len(w.waiting) == 0; quiet += idle {
		if _, err := w.receive(ctx, w.guard, idle); err != nil {
			return false, false, err
		}
		if quiet > stalled {
			return false, false, w.stalled()
		}
	}
	if w.waiting[0].Headers == nil {
		return false, false, nil
	}
	limit := assumedLimit
	if w.kept.Limit > 0 {
		limit = w.kept.Limit
	}
	n := message.Deliveries(w.waiting[0].Headers)
	// Half of it at the most: what is left is for operations that are killed.
	return n >= min(careful, max(limit/2, 1)), n >= max(limit-1, 1)-1, nil
}

// renew moves every message of w to the tail of its own queue, one after the other. It goes on when ctx ends: giving back
// is what the messages cannot stand much more of.
func (q *Queue) renew(ctx context.Context, w *walk) error {
	ctx = context.WithoutCancel(ctx)
	pipe, stop, err := q.pipe(ctx)
	if err != nil {
		return err
	}
	defer stop()
	w.exact = true // a copy that came round already would be given back in the end
	q.o.Logger.Info("dead-letter queue renewed: its messages were about to reach its delivery limit", "queue", q.name, "messages", w.ready)
	v := mover{
		q: q, w: w, log: q.o.Logger, all: true,
		act: func(m *Message) (func() (func() error, error), bool) {
			pub, fits := q.o.Plan.RestorePublication(&m.Properties)
			return func() (func() error, error) { return send(pipe, pub) }, fits
		},
	}
	err = v.carry(ctx)
	if p := v.progress(); err == nil && p.Failed > 0 {
		err = fmt.Errorf("%d messages leave no room in their headers", p.Failed)
	}
	if err != nil {
		return fmt.Errorf("renew queue %q: %w", q.name, err)
	}
	return nil
}
