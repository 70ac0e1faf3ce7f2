package topology

import (
	"cmp"
	"fmt"
	"slices"
)

// waits: one queue per delay, because in a queue of mixed delays the message in front holds up the others; each one
// is reached by its route alone and leads back to the service's queue.
func waits(p *Plan) []error {
	var errs []error
	seen := map[string]bool{}
	for i, w := range p.Waits {
		q := p.queue(w.Queue)
		if q == nil {
			errs = append(errs, fmt.Errorf("wait path %s: queue %q is not in the plan", w.Tier, w.Queue))
			continue
		}
		if seen[w.Queue] {
			errs = append(errs, fmt.Errorf("wait path %s shares queue %q: every delay needs a queue of its own", w.Tier,
				w.Queue))
		}
		seen[w.Queue] = true
		if i > 0 && w.Delay <= p.Waits[i-1].Delay {
			errs = append(errs, fmt.Errorf("wait path %s follows %s: delays must be ascending", w.Tier, p.Waits[i-1].Tier))
		}
		if ttl, _ := q.Args[ArgTTL].(int64); ttl != w.Delay.Milliseconds() || ttl <= 0 {
			errs = append(errs, fmt.Errorf("wait path %s: queue %q holds messages for %d ms, not %d", w.Tier, w.Queue, ttl,
				w.Delay.Milliseconds()))
		}
		if !slices.Equal(p.reach(w.Exchange, w.Key), []string{w.Queue}) {
			errs = append(errs, fmt.Errorf("wait path %s: exchange %q with key %q does not reach %q alone", w.Tier, w.Exchange,
				w.Key, w.Queue))
		}
		if exchange, key, ok := q.DeadLetter(); !ok || !slices.Contains(p.reach(exchange, key), p.Queue) {
			errs = append(errs, fmt.Errorf("wait path %s: queue %q does not lead back to %q", w.Tier, w.Queue, p.Queue))
		}
	}
	return errs
}

// parking: what is parked stays, and stays alone.
func parking(p *Plan) []error {
	if p.Park == (Route{}) {
		return nil
	}
	q := p.queue(p.Park.Queue)
	if q == nil || q.Kind != KindDLQ {
		return []error{fmt.Errorf("parking: dead-letter queue %q is not in the plan", p.Park.Queue)}
	}
	var errs []error
	if !slices.Equal(p.reach(p.Park.Exchange, p.Park.Key), []string{q.Name}) {
		errs = append(errs, fmt.Errorf("parking: exchange %q with key %q does not reach %q alone", p.Park.Exchange,
			p.Park.Key, q.Name))
	}
	if x := p.exchange(p.Park.Exchange); x != nil && x.Type == "topic" && pattern(p.Park.Key) {
		errs = append(errs, fmt.Errorf("parking: the key %q is a pattern to topic exchange %q: it would match what others "+
			"park", p.Park.Key, x.Name))
	}
	for _, arg := range []string{ArgTTL, ArgDLX, "x-max-length", "x-max-length-bytes", "x-expires"} {
		if _, ok := q.Args[arg]; ok {
			errs = append(errs, fmt.Errorf("parking: dead-letter queue %q must not have %s: parked messages stay until they "+
				"are taken out", q.Name, arg))
		}
	}
	return errs
}

// loops: the broker drops a message that goes round a dead-letter cycle without a reject in it. So only a reject may
// move a message out of a service queue that dead-letters into a wait queue.
func loops(p *Plan) []error {
	q := p.queue(p.Queue)
	if q == nil || !p.deadLettersToWait(q) {
		return nil
	}
	var errs []error
	for _, arg := range []string{ArgTTL, "x-max-length", "x-max-length-bytes"} {
		if _, ok := q.Args[arg]; ok {
			errs = append(errs, fmt.Errorf("queue %q must not have %s: its dead letters go round to itself, and the broker "+
				"drops what takes that way without a reject", q.Name, arg))
		}
	}
	return errs
}

func (p *Plan) deadLettersToWait(q *Queue) bool {
	exchange, key, ok := q.DeadLetter()
	if !ok {
		return false
	}
	return slices.ContainsFunc(p.reach(exchange, key), func(name string) bool {
		target := p.queue(name)
		return target != nil && target.Kind == KindRetry
	})
}

// quorumArguments: the durable variant is durable on all queues or it is not.
func quorumArguments(p *Plan) []error {
	var errs []error
	for i := range p.Queues {
		q := &p.Queues[i]
		quorum := q.Args[ArgType] == TypeQuorum
		if quorum != p.Quorum {
			errs = append(errs, fmt.Errorf("queue %q: quorum is %t in a plan where it is %t", q.Name, quorum, p.Quorum))
			continue
		}
		if !quorum {
			continue
		}
		if q.Kind != KindRetry && q.Args[ArgDeliveryLimit] != NoDeliveryLimit {
			errs = append(errs, fmt.Errorf("queue %q needs %s=%d: the broker's own limit drops messages that were requeued "+
				"often", q.Name, ArgDeliveryLimit, NoDeliveryLimit))
		}
		if _, _, ok := q.DeadLetter(); ok && (q.Args[ArgStrategy] != strategyAtLeastOnce ||
			q.Args[ArgOverflow] != overflowReject) {
			errs = append(errs, fmt.Errorf("queue %q needs %s=%s and %s=%s: otherwise a killed broker loses dead letters",
				q.Name, ArgStrategy, strategyAtLeastOnce, ArgOverflow, overflowReject))
		}
	}
	return errs
}

// foreignArguments: only arguments whose effect is known on every supported version.
func foreignArguments(p *Plan) []error {
	known := []string{
		ArgDLX, ArgDLKey, ArgTTL, ArgType, ArgStrategy, ArgOverflow, ArgDeliveryLimit,
		"x-max-length", "x-max-length-bytes", "x-expires", // refused where they do harm
	}
	var errs []error
	for _, q := range p.Queues {
		for arg := range q.Args {
			if !slices.Contains(known, arg) {
				errs = append(errs, fmt.Errorf("queue %q: argument %s is not used: brokers refuse, ignore or differ on it", q.Name,
					arg))
			}
		}
		if _, ok := q.Args["x-expires"]; ok && q.Kind != KindDLQ {
			errs = append(errs, fmt.Errorf("queue %q must not have x-expires: the queue would go away with its messages",
				q.Name))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errs
}

// sharedReturn: a retry that returns through an exchange with other listeners reaches them too. By the stamp their
// sidecars recognise that it is not for them.
func sharedReturn(p *Plan) []error {
	if p.StampQueue {
		return nil
	}
	var errs []error
	for _, w := range p.Waits {
		q := p.queue(w.Queue)
		if q == nil {
			continue
		}
		if exchange, _, _ := q.DeadLetter(); exchange != "" {
			errs = append(errs, fmt.Errorf("wait path %s returns through exchange %q, which others may be bound to: the plan "+
				"has to stamp its retries", w.Tier, exchange))
		}
	}
	return errs
}
