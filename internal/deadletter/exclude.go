package deadletter

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
)

// lockSuffix makes the name of the lock: an empty exclusive queue. The broker gives it to one connection at a time and deletes
// it with that connection.
const lockSuffix = ".sidecar-lock"

// exclude takes the lock. free is false when somebody else has it. A user who may not declare it goes without: then the
// guard alone keeps others out.
func (w *walk) exclude(ctx context.Context) (free bool, err error) {
	if w.locked {
		return true, nil
	}
	ch, err := w.s.Channel(ctx) // a channel of its own: the broker closes it over a refusal
	if err != nil {
		return false, err
	}
	err = w.s.Do(ctx, fmt.Sprintf("lock queue %q", w.q.name), func() error {
		// The type is named because a virtual host may have another default, and that one cannot be exclusive.
		if _, err := ch.QueueDeclare(w.q.lockName(), false, false, true, false, amqp.Table{"x-queue-type": "classic"}); err != nil {
			return err
		}
		return ch.Close()
	})
	refused, ok := errors.AsType[*broker.RefusedError](err)
	switch {
	case ok && refused.Code == amqp.ResourceLocked:
		return false, nil
	case ok:
		return true, nil
	}
	w.locked = err == nil
	return err == nil, err
}

// release gives the lock up before the connection ends: the next operation may follow at once.
func (w *walk) release(ctx context.Context) error {
	if !w.locked {
		return nil
	}
	w.locked = false
	ch, err := w.s.Channel(ctx)
	if err != nil {
		return err
	}
	return w.s.Do(ctx, fmt.Sprintf("unlock queue %q", w.q.name), func() error {
		if _, err := ch.QueueDelete(w.q.lockName(), false, false, false); err != nil {
			return err
		}
		return ch.Close()
	})
}

func (q *Queue) lockName() string { return cut(q.name + lockSuffix) }
