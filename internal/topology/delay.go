package topology

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A quorum queue of RabbitMQ 4.3 can delay messages itself (ByDelay). What is rejected with requeue, and what
// a lost connection returns, waits x-delayed-retry-min for each time that this has happened to the message, at most
// x-delayed-retry-max. A nack with requeue returns at once and is not counted.

// returnsPerRetry is the delivery limit of a queue that delays messages itself, for each retry. The broker counts lost
// connections as well: the limit only ends what kills its consumer again and again.
const returnsPerRetry = 20

func ownLimit(maxRetries int) int64 { return int64(max(maxRetries, 1)) * returnsPerRetry }

// DelaysItself reports whether retries wait in the service's queue, see ByDelay. Brokers before RabbitMQ 4.3
// ignore its arguments: a rejected message is delivered again at once, over a thousand times in a second.
func (p *Plan) DelaysItself() bool { return len(p.Waits) > 0 && p.Waits[0].By == ByDelay }

// DelayAfter is how long a message waits in the service's queue that is rejected at a delivery to which the broker
// wrote that count, see message.Deliveries; 0 where that queue delays nothing itself.
func (p *Plan) DelayAfter(deliveries int) time.Duration {
	if !p.DelaysItself() {
		return 0
	}
	shortest, longest := p.ownDelays()
	if times := time.Duration(deliveries) + 1; times <= longest/shortest {
		return times * shortest
	}
	return longest
}

// ownDelays are the shortest and the longest delay of the service's queue, by its arguments: also of a plan without
// retries.
func (p *Plan) ownDelays() (shortest, longest time.Duration) {
	args := p.OwnQueue().Args
	least, _ := args[ArgRetryMin].(int64)
	most, _ := args[ArgRetryMax].(int64)
	return time.Duration(least) * time.Millisecond, time.Duration(max(least, most)) * time.Millisecond
}

// Delays are those of the waits, the shortest first; of the service's queue the shortest and the longest.
func (p *Plan) Delays() (all []time.Duration) {
	if p.DelaysItself() {
		shortest, longest := p.ownDelays()
		return slices.Compact([]time.Duration{shortest, longest})
	}
	for _, w := range p.Waits {
		all = append(all, w.Delay)
	}
	return all
}

// DelaysText says for people how long messages wait in the service's queue.
func (p *Plan) DelaysText() string {
	delays := p.Delays()
	if len(delays) == 1 {
		return TierLabel(delays[0])
	}
	return fmt.Sprintf("%s, and as much longer each time, up to %s", TierLabel(delays[0]), TierLabel(delays[1]))
}

// FixDelay is how the service's queue, which exists and delays nothing, delays messages.
func (p *Plan) FixDelay() string {
	shortest, longest := p.ownDelays()
	return fmt.Sprintf(`rabbitmqctl set_policy -p VHOST NAME '^%s$' '{"delayed-retry-type":"failed","delayed-retry-min":%d,`+
		`"delayed-retry-max":%d}' --apply-to quorum_queues, or these keys in the policy that applies to it already`,
		regexp.QuoteMeta(p.Queue), shortest.Milliseconds(), longest.Milliseconds())
}

// besideOwnDelays adds retry queues where the service's queue exists and delays messages by other times: it cannot be
// changed, and goes on delaying what is in it. Retries are published to them, with the count in a header.
func (p *Plan) besideOwnDelays(f Found) {
	seen, args := f.Queues[p.Queue], p.OwnQueue().Args
	if !p.DelaysItself() || !delaysFailed(seen) ||
		seen[ArgRetryMin] == args[ArgRetryMin] && seen[ArgRetryMax] == args[ArgRetryMax] {
		return
	}
	var queues []Queue
	var waits []WaitPath
	for _, d := range p.Delays() {
		q := Queue{
			Name: p.Queue + "." + TierLabel(d), Kind: KindRetry, Beside: true,
			Args: amqp.Table{ArgTTL: d.Milliseconds(), ArgDLX: "", ArgDLKey: p.Queue},
		}
		if f.Barred[q.Title()] || nameFault(q.Name) != "" || p.queue(q.Name) != nil {
			return // it keeps its own delays
		}
		q.makeQuorum()
		queues, waits = append(queues, q), append(waits, WaitPath{d, Route{Key: q.Name, Queue: q.Name}, ByPublish})
	}
	p.Queues, p.Waits, p.Tiered = append(queues, p.Queues...), waits, len(waits) > 1
}

func delaysFailed(found amqp.Table) bool {
	return found[ArgRetryType] == delayFailed || found[ArgRetryType] == delayAll
}
