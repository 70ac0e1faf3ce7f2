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

// Depths asks for the number of ready messages in every queue of the plan, and whether everything a retried or
// parked message passes through is still there. What is gone is missing from the depths and named by a finding. A
// queue the user may not see (from RabbitMQ 4.3) is missing without one. An error is trouble with the session.
func Depths(ctx context.Context, s Session, p *topology.Plan) ([]Depth, []Finding, error) {
	e := newEnsurer(s, p, topology.ModeVerify)
	defer e.close(ctx)
	return e.depths(ctx)
}

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
