package declare

import (
	"context"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// Depth is how many messages are ready in a queue. Main is the queue that is consumed by the same plan.
type Depth struct {
	Queue string        `json:"queue"`
	Main  string        `json:"-"`
	Kind  topology.Kind `json:"kind"`
	Ready int           `json:"ready"`
}

// Measured is what Measure has found.
type Measured struct {
	// Depths of the queues, in the plan's order. A queue that the user may not read (from RabbitMQ 4.3) has none.
	Depths []Depth

	// Missing objects that a retried or parked message passes through, and queues whose node is down.
	Missing []Finding

	// Unconsumed says that messages were ready in the queue that is consumed, and that it had no consumer.
	Unconsumed bool
}

// Measure counts the ready messages in every queue of the plan and notices missing objects; Ensure checks the rest. An
// error is a failure of the session.
func Measure(ctx context.Context, s Session, p *topology.Plan) (m Measured, err error) {
	if _, old := TooOld(s, p); old {
		return m, nil // Ensure reports that, and declares nothing
	}
	e := newEnsurer(s, p, topology.ModeVerify)
	defer e.close(context.WithoutCancel(ctx))
	for _, o := range objects(p) {
		refusal := e.ask(ctx, lookFor+o.title, o.passive)
		switch {
		case refusal != nil && absent(refusal):
			e.findings = append(e.findings, o.absent())
		case refusal != nil && refusal.Code == amqp.NotFound:
			e.refused(o.title, "a durable "+o.kind, refusal)
		case refusal == nil && e.err == nil && o.queue != nil:
			m.Depths = append(m.Depths, Depth{Queue: o.name, Main: p.Queue, Kind: o.queue.Kind, Ready: o.counts.Messages})
			m.Unconsumed = m.Unconsumed || o.name == p.Queue && o.counts.Messages > 0 && o.counts.Consumers == 0
		}
	}
	m.Missing = e.findings
	return m, e.err
}
