package declare

import (
	"context"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// Unlimited is topology.NoDeliveryLimit as a Kept.Limit.
const Unlimited = int(topology.NoDeliveryLimit)

// Kept is how a queue handles requeued messages.
type Kept struct {
	Known  bool // false: the user may not ask, or the broker does not say; no other field is valid
	Quorum bool
	Named  bool // a quorum queue names a delivery limit
	Limit  int  // that limit: how often a message may be requeued before the queue drops it; negative: no end

	Vanishes bool // auto-delete: the queue is deleted with its last consumer
	Single   bool // one consumer gets everything, all others nothing
}

// Keeping asks how a queue, which has to exist, handles requeued messages. A limit set by a policy cannot be seen over
// AMQP.
func Keeping(ctx context.Context, s Session, queue string) (Kept, error) {
	p := prober{s: s}
	defer p.close(ctx)
	likely := amqp.Table{topology.PropertyDurable: true, topology.ArgType: topology.TypeClassic}
	found, _ := p.inspectQueue(ctx, queue, likely)
	if found == nil || p.err != nil {
		return Kept{}, p.err
	}
	limit, named := found[topology.ArgDeliveryLimit].(int64)
	return Kept{
		Known: true, Quorum: found[topology.ArgType] == topology.TypeQuorum, Named: named,
		Limit:    int(min(limit, topology.NoDeliveryLimit)),
		Vanishes: found[topology.PropertyAutoDelete] == true,
		Single:   found[topology.ArgSingleConsumer] == true,
	}, nil
}
