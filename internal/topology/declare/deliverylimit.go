package declare

import (
	"context"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// Unlimited is topology.NoDeliveryLimit as a Kept.Limit.
const Unlimited = int(topology.NoDeliveryLimit)

// Kept is how a queue handles requeued messages.
type Kept struct {
	Known  bool // false: the user may not ask, or the broker does not say; of what follows nothing is known
	Quorum bool
	Named  bool // a quorum queue names a delivery limit
	Limit  int  // that limit: how often a message may be requeued before the queue drops it; negative: no end

	Vanishes bool // auto-delete: the queue is deleted with its last consumer
	Single   bool // one consumer gets everything, all others nothing
}

// Keeping asks how a queue, which has to exist, handles requeued messages. It asks by declaring it as a quorum
// queue without a limit. A refusal names the first thing that is different; with that one as it is it asks again. A
// limit set by a policy cannot be seen over AMQP.
func Keeping(ctx context.Context, s Session, queue string) (Kept, error) {
	const most = 16 // arguments that a queue may have
	p := prober{s: s}
	defer p.close(ctx)
	k := Kept{Quorum: true, Named: true, Limit: Unlimited}
	args := amqp.Table{topology.ArgType: topology.TypeQuorum, topology.ArgDeliveryLimit: topology.NoDeliveryLimit}
	for range most {
		refusal := p.ask(ctx, "ask for the type of "+queueObject(queue), declareQueue(queue, args))
		if p.err != nil {
			return Kept{}, p.err
		}
		if refusal == nil {
			k.Known = true
			return k, nil
		}
		property, found, ok := drifted(refusal)
		switch {
		case property == "auto_delete":
			return Kept{Known: true, Vanishes: true}, nil
		case property == argNever && found == "true":
			return Kept{Known: true, Single: true}, nil
		case property == topology.ArgType:
			k = Kept{}
			delete(args, topology.ArgDeliveryLimit) // others do not have it
		case property == topology.ArgDeliveryLimit:
			n, err := strconv.Atoi(found)
			if err != nil && found != absentValue {
				return Kept{}, nil
			}
			k.Named, k.Limit = err == nil, min(n, Unlimited)
		}
		if !ok || !adopt(args, property, found) { // seeing the type is enough for a queue that is not a quorum queue
			return Kept{Known: !k.Quorum}, nil
		}
	}
	return Kept{}, nil
}
