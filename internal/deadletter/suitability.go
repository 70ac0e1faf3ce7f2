package deadletter

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology/declare"
)

// checkSuitable reads how the queue handles requeued messages, and refuses a queue in which reading loses messages.
// The queue has to exist: a missing one would be declared.
func (r *claim) checkSuitable(ctx context.Context) (err error) {
	if r.kept, err = declare.Keeping(ctx, r.s, r.q.name); err != nil {
		return err
	}
	problem := ""
	switch {
	case !r.kept.Known:
		problem, err = r.unknownProblem(ctx)
	case r.kept.Vanishes:
		problem = "is auto-delete: reading it would delete it, with its messages"
	case r.kept.Single:
		problem = "has x-single-active-consumer, which hides its messages from other consumers"
	case r.kept.Named && r.kept.Limit == 0:
		problem = "has a delivery limit of 0: every message that is read would be dropped"
	}
	if problem != "" {
		err = fmt.Errorf("%w: queue %q %s", ErrUnsafe, r.q.name, problem)
	}
	return err
}

// unknownProblem is for a user who may not ask. When a quorum queue drops messages is then unknown.
func (r *claim) unknownProblem(ctx context.Context) (problem string, err error) {
	if r.s.AtLeast(4, 3) { // it does not count what is given back
		return "", nil
	}
	if r.kept.Quorum, err = r.q.countsReturns(ctx); r.kept.Quorum {
		return "counts each read towards its delivery limit, which this user may not see: grant configure on the queue", nil
	}
	r.kept.Known = r.s.Major() < 4 // newer brokers do not show it
	return "", err
}

// countsReturns reports whether the queue is a quorum queue, on a broker before 4.3: that refuses a consumer of one on
// a channel with a channel-wide prefetch (540, which ends the connection). This needs only the read right. RabbitMQ 4.3
// does not refuse it, and the message that the consumer is given would count as returned by a broken connection.
func (q *Queue) countsReturns(ctx context.Context) (bool, error) {
	s, err := q.dialer.Dial(ctx)
	if err != nil {
		return false, err
	}
	defer s.Close()
	err = onChannel(ctx, s, fmt.Sprintf("ask for the type of queue %q", q.name), func(ch *amqp.Channel) error {
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

// firstCost is what a first message may take in memory without its body.
const firstCost = 1 << 20

// hasMemory waits for the memory that a first message takes without its body. Its headers say how often it has been
// given back: without them the queue could not be read safely, because each read requeues the message once more,
// until the delivery limit of the queue drops it.
func (q *Queue) hasMemory(ctx context.Context) error {
	m := q.o.Broker.Memory
	n := min(firstCost, m.Limit()/2)
	ctx, cancel := context.WithTimeout(ctx, q.o.Broker.MemoryPatience)
	defer cancel()
	if !m.Wait(n, ctx.Done()) {
		return fmt.Errorf("%w now: other messages use all of SIDECAR_MEMORY", ErrUnsafe)
	}
	m.Give(n)
	return nil
}
