package topology

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

const (
	fanoutRetries = 10
	fanoutDelay   = 5 * time.Second
	fanoutKey     = "retry"
)

// checkFanout refuses what has no meaning in this preset.
func (o *Options) checkFanout() error {
	var errs []error
	if o.MessageTTL != 0 {
		errs = append(errs, fmt.Errorf("SIDECAR_MESSAGE_TTL: only with SIDECAR_TOPOLOGY=%s", PresetDeadLetter))
	}
	if o.NoDeadLetter {
		errs = append(errs, fmt.Errorf("SIDECAR_DEAD_LETTER=disabled: only with SIDECAR_TOPOLOGY=%s", PresetDeadLetter))
	}
	if o.RetryDelays != nil && len(o.RetryDelays) == 0 {
		errs = append(errs, fmt.Errorf("SIDECAR_RETRY_DELAYS=none: only with SIDECAR_TOPOLOGY=%s; SIDECAR_MAX_RETRIES=0 parks at the first failure",
			PresetDelayLadder))
	}
	if o.ExchangeType == "direct" && len(o.Bindings) == 0 {
		errs = append(errs, errors.New("SIDECAR_EXCHANGE_TYPE=direct needs SIDECAR_BINDINGS: a direct exchange routes by key"))
	}
	return errors.Join(errs...)
}

// fanout is the preset in which one exchange feeds every service's queue and each service retries for itself:
//
//	main-exchange ─▶ queue ─reject▶ retry-exchange ─▶ retry-queue ─ttl▶ queue
//	                   └─publish▶ dlq
//
// The names and, for classic queues, the arguments are a fixed agreement with services that declare the same objects.
func fanout(o Options) *Plan {
	prefix := cmp.Or(o.Prefix, prefixOf(o.Service))
	p := &Plan{
		Preset: PresetFanout, Service: o.Service, MaxRetries: fanoutRetries, FrameMax: DefaultFrameMax,
		Quorum: o.QueueType == typeQuorum,
		Queue:  cmp.Or(o.Queue, prefix+".queue."+o.Service),
	}
	if o.MaxRetries != nil {
		p.MaxRetries = *o.MaxRetries
	}
	p.Redrive = Route{Key: p.Queue, Queue: p.Queue}

	p.feed(o, cmp.Or(o.Exchange, prefix+".main-exchange"), cmp.Or(o.ExchangeType, "fanout"))
	retry := cmp.Or(o.RetryExchange, prefix+".retry-exchange."+o.Service)
	p.Exchanges = append(p.Exchanges, Exchange{Name: retry, Type: "direct"})
	p.park(o.DLX, cmp.Or(o.DLQ, prefix+".dlq."+o.Service))
	p.wait(o, retry, cmp.Or(o.RetryQueue, prefix+".retry-queue."+o.Service))
	p.Queues = append(p.Queues, Queue{Name: p.Queue, Kind: KindMain, Args: serviceArgs(retry, fanoutKey, p.Quorum)})
	return p
}

// feed binds the service's queue to what it listens to.
func (p *Plan) feed(o Options, exchange, kind string) {
	main := Exchange{Name: exchange, Type: kind, Shared: true}
	if len(o.Bindings) == 0 {
		key := ""
		if kind == "topic" {
			key = "#"
		}
		p.Exchanges = append(p.Exchanges, main)
		p.Bindings = append(p.Bindings, Binding{Exchange: exchange, Key: key, Queue: p.Queue})
		return
	}
	for _, b := range o.Bindings {
		b.Queue = p.Queue
		p.Bindings = append(p.Bindings, b)
		switch {
		case p.exchange(b.Exchange) != nil:
		case b.Exchange == exchange:
			p.Exchanges = append(p.Exchanges, main)
		default:
			p.Exchanges = append(p.Exchanges, Exchange{Name: b.Exchange, Shared: true})
		}
	}
}

// park lays the way to the dead-letter queue: directly, or through an exchange of its own.
func (p *Plan) park(exchange, queue string) {
	p.Queues = append(p.Queues, Queue{Name: queue, Kind: KindDLQ, Args: parkArgs(p.Quorum)})
	p.Park = Route{Exchange: exchange, Key: queue, Queue: queue}
	if exchange != "" {
		p.Exchanges = append(p.Exchanges, Exchange{Name: exchange, Type: "direct"})
		p.Bindings = append(p.Bindings, Binding{Exchange: exchange, Key: queue, Queue: queue})
	}
}

// wait lays the ways to wait. The retry queue exists with tiers too: the service's queue keeps its dead-letter route,
// so that tiers can be switched on and off without deleting it, and what the broker or another consumer dead-letters
// must arrive somewhere.
func (p *Plan) wait(o Options, exchange, queue string) {
	delay := cmp.Or(o.RetryDelay, fanoutDelay)
	plain := p.waitQueue(Route{Exchange: exchange, Key: fanoutKey, Queue: queue}, delay)
	if p.Tiered = len(o.RetryDelays) > 0; !p.Tiered {
		plain.ByReject = true
		p.Waits = []WaitPath{plain}
		return
	}
	for _, d := range o.RetryDelays {
		tier := tierLabel(d)
		p.Waits = append(p.Waits, p.waitQueue(Route{Exchange: exchange, Key: tier, Queue: queue + "." + tier}, d))
	}
}

// waitQueue adds a queue that gives its messages back to the service's queue after delay.
func (p *Plan) waitQueue(r Route, delay time.Duration) WaitPath {
	p.Queues = append(p.Queues, Queue{Name: r.Queue, Kind: KindRetry, Args: waitArgs(delay, "", p.Queue, p.Quorum)})
	p.Bindings = append(p.Bindings, Binding(r))
	return WaitPath{Tier: tierLabel(delay), Delay: delay, Route: r}
}
