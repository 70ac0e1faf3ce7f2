package declare

import (
	"context"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// Depth is how many messages are ready in a queue.
type Depth struct {
	Queue string
	Kind  topology.Kind
	Ready int
}

// depths returns the number of ready messages in every queue of the plan, and the missing objects that a retried or
// parked message passes through. A missing queue has no depth and is a finding; a queue that the user may not read
// (from RabbitMQ 4.3) has no depth and is not a finding. An error is a failure of the session.
func (e *ensurer) depths(ctx context.Context) ([]Depth, []Finding, error) {
	e.findings = nil
	var depths []Depth
	for _, x := range e.p.Exchanges {
		refusal, err := e.ask(ctx, "look for "+exchangeObject(x.Name), passiveExchange(x.Name))
		if err != nil {
			return nil, nil, err
		}
		e.gone(exchangeOf(x), refusal)
	}
	for i := range e.p.Queues {
		q := &e.p.Queues[i]
		var ready int
		refusal, err := e.ask(ctx, "look for "+queueObject(q.Name), func(ch *amqp.Channel, _ bool) error {
			state, err := ch.QueueDeclarePassive(q.Name, true, false, false, false, nil)
			ready = state.Messages
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		if refusal == nil {
			depths = append(depths, Depth{Queue: q.Name, Kind: q.Kind, Ready: ready})
		}
		e.gone(queueOf(q), refusal)
	}
	return depths, e.findings, nil
}

// gone reports missing objects and nothing else: Ensure has checked the rest.
func (e *ensurer) gone(o object, refusal *amqp.Error) {
	if refusal != nil && refusal.Code == amqp.NotFound {
		e.absent(o, refusal)
	}
}
