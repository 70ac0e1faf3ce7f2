package topology

import (
	"context"
	"math"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Unlimited is a delivery limit that no message reaches.
const Unlimited = math.MaxInt32

// Kept is how a queue keeps the messages that are given back to it.
type Kept struct {
	Known  bool // false: the user may not ask; nothing else is said
	Quorum bool
	Limit  int // how often a message may be given back before a quorum queue drops it; 0: the queue names none
}

// Keeping asks how a queue, which has to exist, keeps what is given back to it. It asks by declaring it as a quorum queue
// without a limit: a refusal names what is different. A limit set by a policy cannot be seen over AMQP.
func Keeping(ctx context.Context, s Session, queue string) (Kept, error) {
	p := prober{s: s}
	defer p.close(ctx)
	args := amqp.Table{argType: typeQuorum, argDeliveryLimit: deliveryLimit}
	refusal, err := p.ask(ctx, "ask for the type of "+queueObject(queue), activeQueue(queue, args))
	if err != nil {
		return Kept{}, err
	}
	if refusal == nil {
		return Kept{Known: true, Quorum: true, Limit: Unlimited}, nil
	}
	switch property, found, ok := drifted(refusal); {
	case !ok:
		return Kept{}, nil
	case property == argType:
		return Kept{Known: true}, nil
	case property == argDeliveryLimit:
		n, _ := strconv.Atoi(found)
		return Kept{Known: true, Quorum: true, Limit: min(n, Unlimited)}, nil
	}
	return Kept{}, nil // it differs in something else first
}
