package deadletter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/topology/declare"
)

const (
	// lockTries is how often an operation tries to be alone with the queue: reads by others end soon.
	lockTries = 4
	lockPause = 400 * time.Millisecond

	// closeTimeout bounds what has to be done at the end, also when the operation was asked to end.
	closeTimeout = 30 * time.Second
	// consumerLeaves bounds the wait for the own cancelled consumer to leave the queue; another consumer may stay for
	// ever.
	consumerLeaves      = 5 * time.Second
	closeTimePerMessage = 200 * time.Microsecond // more, for every message of the queue
)

// lockSuffix makes the name of the lock: an empty exclusive queue. The broker gives it to one connection at a time and
// deletes it with that connection.
const lockSuffix = ".sidecar-lock"

// claim is the right to read a queue.
type claim struct {
	q      *Queue
	s      *broker.Session
	sub    *broker.Subscription // the guard's
	guard  *broker.Consumer     // nil: there is no right yet
	locked bool
	kept   declare.Kept
}

// takeLock takes the lock. free is false when another process has it. A user who may not declare it goes without: then
// the guard alone keeps others out.
func (r *claim) takeLock(ctx context.Context) (free bool, err error) {
	if r.locked {
		return true, nil
	}
	err = onChannel(ctx, r.s, fmt.Sprintf("lock queue %q", r.q.name), func(ch *amqp.Channel) error {
		// The type is named because a virtual host may have another default, and that one cannot be exclusive.
		_, err := ch.QueueDeclare(r.q.lockName(), false, false, true, false, amqp.Table{"x-queue-type": "classic"})
		return err
	})
	refused, ok := errors.AsType[*broker.RefusedError](err)
	switch {
	case ok && refused.Code == amqp.ResourceLocked:
		return false, nil
	case ok:
		return true, nil
	}
	r.locked = err == nil
	return err == nil, err
}

// release gives the lock up before the connection ends: the next operation may follow at once.
func (r *claim) release(ctx context.Context) error {
	if !r.locked {
		return nil
	}
	r.locked = false
	return onChannel(ctx, r.s, fmt.Sprintf("unlock queue %q", r.q.name), func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete(r.q.lockName(), false, false, false)
		return err
	})
}

func (q *Queue) lockName() string { return lastBytes(q.name + lockSuffix) }

// claimQueue makes sure that the queue has no other consumer: of two that claim it at the same time, each first becomes
// a consumer and then counts them, so at most one of them counts itself alone. The consumer, the guard, stays for as
// long as the operation lasts, and it dies with the connection. It takes one message, the first.
//
// The lock comes before it. Two guards at once would take the first two messages, and in a quorum queue the one that
// gives up puts its own behind others; and a guard that ends leaves a moment in which not everything has been requeued.
func (r *reader) claimQueue(ctx context.Context) error {
	check := sync.OnceValue(func() error { return r.checkSuitable(ctx) })
	for try := 1; ; try++ {
		alone, err := r.takeLock(ctx)
		if alone && err == nil {
			alone, err = r.tryClaimQueue(ctx, check)
		}
		if alone || err != nil {
			return err
		}
		if try == lockTries {
			return fmt.Errorf("%w: another operation runs on %q, or something else consumes it", ErrInUse, r.q.name)
		}
		if err := pause(ctx, r.q.pause/4+rand.N(r.q.pause)); err != nil { // #nosec G404 -- no secret
			return err
		}
	}
}

// checkedDepth returns the depth of the queue, which check has checked if there are messages and no consumer.
func (r *reader) checkedDepth(ctx context.Context, check func() error) (Depth, error) {
	d, err := r.q.depth(ctx, r.s)
	if err == nil && d.Consumers == 0 && d.Ready > 0 {
		if err = check(); err == nil {
			d, err = r.q.depth(ctx, r.s) // again: the check may have taken a message, and has it until its consumer is gone
		}
	}
	return d, err
}

func (r *reader) tryClaimQueue(ctx context.Context, check func() error) (alone bool, err error) {
	before, err := r.checkedDepth(ctx, check)
	if err != nil || before.Consumers > 0 {
		return false, err
	}
	if r.guard, err = r.sub.Consume(ctx, 1); err != nil {
		return false, r.q.missing(err)
	}
	d, err := r.q.depth(ctx, r.s)
	if err == nil && d.Consumers == 1 && !r.locked {
		d, err = r.waitStable(ctx, d)
	}
	switch {
	case err != nil:
		return false, err
	case d.Consumers == 0:
		// A quorum queue without a leader reports neither messages nor consumers.
		return false, fmt.Errorf("%w: queue %q does not say what it holds", ErrStopped, r.q.name)
	case d.Consumers == 1 && before.Ready > 0:
		r.ready = d.Ready + 1 // the guard's
		r.total = r.ready
		return true, nil
	case d.Consumers == 1 && d.Ready == 0:
		return true, nil // empty
	}
	if err := r.guard.Stop(ctx); err != nil {
		return false, err
	}
	r.guard.Drop() // its messages are requeued now
	r.guard = nil
	return false, r.sub.RequeueUpTo(ctx, 0)
}

// waitStable waits until the queue does not grow any more: without the lock another process may be giving back
// messages.
func (r *claim) waitStable(ctx context.Context, d Depth) (Depth, error) {
	for range 20 {
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return d, err
		}
		next, err := r.q.depth(ctx, r.s)
		if err != nil || next.Ready <= d.Ready {
			return next, err
		}
		d = next
	}
	return d, nil
}

// withoutDeadline is ctx without its deadline: a call to the broker that a deadline cuts off costs the session, and
// with it the order of all that is held, and one return of each. It ends when ctx does.
func withoutDeadline(ctx context.Context) (context.Context, func()) {
	free, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return free, func() {
		stop()
		cancel(nil)
	}
}

// Depth is what the broker reports about the queue without reading it.
type Depth struct {
	Ready     int // ready messages
	Consumers int // running operations, or other consumers of the queue
}

// Depth asks the broker. It excludes nothing else.
func (q *Queue) Depth(ctx context.Context) (Depth, error) {
	s, err := q.dialer.Dial(ctx)
	if err != nil {
		return Depth{}, err
	}
	defer s.Close()
	return q.depth(ctx, s)
}

func (q *Queue) depth(ctx context.Context, s *broker.Session) (Depth, error) {
	var state amqp.Queue
	err := onChannel(ctx, s, fmt.Sprintf("read the depth of queue %q", q.name), func(ch *amqp.Channel) (err error) {
		state, err = declare.Count(ch, q.name)
		return err
	})
	return Depth{Ready: state.Messages, Consumers: state.Consumers}, q.missing(err)
}

// onChannel calls fn with a channel of its own: the broker closes a channel over a refusal.
func onChannel(ctx context.Context, s *broker.Session, name string, fn func(*amqp.Channel) error) error {
	ch, err := s.Channel(ctx)
	if err != nil {
		return err
	}
	return s.Do(ctx, name, func() error {
		if err := fn(ch); err != nil {
			return err
		}
		return ch.Close()
	})
}

// missing makes ErrMissing of the broker's 404.
func (q *Queue) missing(err error) error {
	refused, ok := errors.AsType[*broker.RefusedError](err)
	switch {
	case !ok || refused.Code != amqp.NotFound:
		return err
	case declare.NodeDown(refused.Text):
		return fmt.Errorf("%w: %w", ErrDown, err)
	}
	return fmt.Errorf("%w: %w", ErrMissing, err)
}

// pause waits; the error is the cause of ctx, which ended first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
