package declare

import (
	"context"
	"math"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// Unlimited is a delivery limit that no message reaches.
const Unlimited = math.MaxInt32

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
		refusal, err := p.ask(ctx, "ask for the type of "+queueObject(queue), activeQueue(queue, args))
		if err != nil {
			return Kept{}, err
		}
		if refusal == nil {
			k.Known = true
			return k, nil
		}
		property, found, ok := drifted(refusal)
		if !ok {
			return Kept{Known: !k.Quorum}, nil
		}
		if !k.learn(args, property, found) {
			return k, nil
		}
	}
	return Kept{}, nil
}

// learn takes a value from a refusal into args. more is true when the broker has to be asked again with these args.
func (k *Kept) learn(args amqp.Table, property, found string) (more bool) {
	switch property {
	case "auto_delete":
		*k = Kept{Known: true, Vanishes: true}
		return false
	case argNever:
		switch found {
		case "true":
			*k = Kept{Known: true, Single: true}
			return false
		case "false":
			args[argNever] = false
			return true
		}
	case topology.ArgType:
		*k = Kept{Quorum: false}
		delete(args, topology.ArgDeliveryLimit) // others do not have it
	case topology.ArgDeliveryLimit:
		n, err := strconv.Atoi(found)
		if k.Named, k.Limit = err == nil, min(n, Unlimited); err != nil && found != absentValue {
			*k = Kept{}
			return false
		}
	}
	if adopt(args, property, found) {
		return true
	}
	// Seeing the type is enough for a queue that is not a quorum queue.
	*k = Kept{Known: !k.Quorum}
	return false
}
