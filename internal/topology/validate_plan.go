package topology

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sidecar/internal/amqpvalue"
)

// Validate reports everything in the plan by which a broker of any version could lose messages, joined. Each rule was
// learned from a loss; docs/topologies.md has the stories. It talks to no broker: a valid plan can still meet objects
// that do not fit, see declare.Ensure.
func (p *Plan) Validate() error {
	v := planValidator{Plan: p}
	v.names()
	v.ownQueue()
	v.references()
	v.waits()
	v.parking()
	v.arguments()
	return errors.Join(v.errs...)
}

// planValidator collects while it goes: no rule ends the others.
type planValidator struct {
	*Plan
	errs []error
}

func (v *planValidator) refuse(wrong bool, format string, args ...any) {
	if wrong {
		v.errs = append(v.errs, fmt.Errorf(format, args...))
	}
}

func (v *planValidator) names() {
	seen := map[string]bool{}
	check := func(what, name string) {
		fault := objectFault(name)
		v.refuse(name == "", "%s has no name", what)
		v.refuse(fault != "", "%s %s %s", what, brief(name), fault)
		v.refuse(seen[what+name], "%s %q has two roles: names must differ", what, name)
		seen[what+name] = true
	}
	for _, e := range v.Exchanges {
		check("exchange", e.Name)
		v.refuse(e.Type != "" && !slices.Contains(exchangeTypes, e.Type), "exchange %q has type %q: use %s", e.Name, e.Type,
			strings.Join(exchangeTypes, ", "))
		t := predeclared[e.Name]
		v.refuse(t != "" && e.Type != "" && e.Type != t, "exchange %q is the broker's own and of type %s, not %s", e.Name, t,
			e.Type)
	}
	for _, q := range v.Queues {
		check("queue", q.Name)
	}
	for _, b := range v.Bindings {
		v.refuse(len(b.Key) > amqpvalue.ShortMax, "binding key %q is %d bytes long: at most %d", b.Key, len(b.Key),
			amqpvalue.ShortMax)
	}
}

func (v *planValidator) ownQueue() {
	q := v.queue(v.Queue)
	v.refuse(q == nil || q.Kind != KindMain, "the service's queue %q is not in the plan", v.Queue)
	v.refuse(v.MaxRetries < 0, "max retries is %d: at least 0", v.MaxRetries)
	v.refuse(v.MaxRetries > 0 && len(v.Waits) == 0, "max retries is %d, but there is no queue to wait in", v.MaxRetries)
}

// references: nothing is bound or dead-lettered to something that is not in the plan.
func (v *planValidator) references() {
	for _, b := range v.Bindings {
		v.refuse(b.Exchange == "", "queue %q cannot be bound to the default exchange", b.Queue)
		v.refuse(b.Exchange != "" && v.exchange(b.Exchange) == nil,
			"queue %q is bound to exchange %q, which is not in the plan", b.Queue, b.Exchange)
		v.refuse(v.queue(b.Queue) == nil, "binding of %q: queue %q is not in the plan", b.Exchange, b.Queue)
	}
	for _, q := range v.Queues {
		exchange, key, ok := q.DeadLetter()
		v.refuse(ok && len(v.reach(exchange, key)) == 0, "queue %q dead-letters to exchange %q with key %q, which reaches "+
			"no queue: its dead letters would be lost", q.Name, exchange, key)
	}
}

// waits: one queue per delay, because in a queue of mixed delays the message in front holds up the others; each one
// is reached by its route alone and leads back to the service's queue.
func (v *planValidator) waits() {
	seen := map[string]bool{}
	for i, w := range v.Waits {
		q := v.queue(w.Queue)
		if q == nil {
			v.refuse(true, "wait path %s: queue %q is not in the plan", w.Tier, w.Queue)
			continue
		}
		v.refuse(seen[w.Queue], "wait path %s shares queue %q: every delay needs a queue of its own", w.Tier, w.Queue)
		seen[w.Queue] = true
		if i > 0 {
			before := v.Waits[i-1]
			v.refuse(w.Delay <= before.Delay, "wait path %s follows %s: delays must be ascending", w.Tier, before.Tier)
		}
		ttl, _ := q.Args[ArgTTL].(int64)
		v.refuse(ttl != w.Delay.Milliseconds() || ttl <= 0, "wait path %s: queue %q holds messages for %d ms, not %d", w.Tier,
			w.Queue, ttl, w.Delay.Milliseconds())
		v.refuse(!v.reachesOnly(w.Exchange, w.Key, w.Queue), "wait path %s: exchange %q with key %q does not reach %q alone",
			w.Tier, w.Exchange, w.Key, w.Queue)
		exchange, key, ok := q.DeadLetter()
		v.refuse(!ok || !slices.Contains(v.reach(exchange, key), v.Queue), "wait path %s: queue %q does not lead back to %q",
			w.Tier, w.Queue, v.Queue)
		// Other listeners of the exchange get the retry too. By the stamp their sidecars recognise that it is not for them.
		v.refuse(exchange != "" && !v.StampQueue, "wait path %s returns through exchange %q, which others may be bound to: "+
			"the plan has to stamp its retries", w.Tier, exchange)
	}
	v.rejects()
}

// rejects: a queue has one dead-letter route, so one path at most can be taken by rejecting.
func (v *planValidator) rejects() {
	q := v.queue(v.Queue)
	if q == nil {
		return
	}
	exchange, key, ok := q.DeadLetter()
	rejects := 0
	for _, w := range v.Waits {
		if !w.ByReject {
			continue
		}
		rejects++
		v.refuse(rejects > 1, "wait path %s: a second path cannot leave by reject, a queue has one dead-letter route", w.Tier)
		v.refuse(!ok || !v.reachesOnly(exchange, key, w.Queue),
			"wait path %s leaves by reject, but queue %q does not dead-letter to %q alone", w.Tier, q.Name, w.Queue)
	}
}

func (v *planValidator) reachesOnly(exchange, key, queue string) bool {
	return slices.Equal(v.reach(exchange, key), []string{queue})
}

// parking: what is parked stays alone.
func (v *planValidator) parking() {
	r := v.Park
	if r == (Route{}) {
		return
	}
	q := v.queue(r.Queue)
	v.refuse(q == nil || q.Kind != KindDLQ, "parking: dead-letter queue %q is not in the plan", r.Queue)
	v.refuse(!v.reachesOnly(r.Exchange, r.Key, r.Queue), "parking: exchange %q with key %q does not reach %q alone",
		r.Exchange, r.Key, r.Queue)
	x := v.exchange(r.Exchange)
	v.refuse(x != nil && x.Type == "topic" && pattern(r.Key),
		"parking: the key %q is a pattern to topic exchange %q: it would match what others park", r.Key, r.Exchange)
}

// arguments: only those whose effect is known on every supported version, and only those that keep all messages.
func (v *planValidator) arguments() {
	const maxLength, maxBytes, expires = "x-max-length", "x-max-length-bytes", "x-expires"
	known := []string{
		ArgDLX, ArgDLKey, ArgTTL, ArgType, ArgStrategy, ArgOverflow, ArgDeliveryLimit, maxLength, maxBytes, expires,
	}
	for _, q := range v.Queues {
		for _, arg := range slices.Sorted(maps.Keys(q.Args)) {
			v.refuse(!slices.Contains(known, arg), "queue %q: argument %s is not used: brokers refuse, ignore or differ on it",
				q.Name, arg)
		}
		if q.Kind == KindDLQ {
			v.without(q, "parked messages stay until they are taken out", ArgTTL, ArgDLX, maxLength, maxBytes, expires)
		} else {
			v.without(q, "the queue would go away with its messages", expires)
		}
		if q.Name == v.Queue && v.deadLettersToWait(q) {
			v.without(q, "its dead letters go round to itself, and the broker drops what takes that way without a reject",
				ArgTTL, maxLength, maxBytes)
		}
		v.durable(q)
	}
}

func (v *planValidator) without(q Queue, why string, args ...string) {
	for _, arg := range args {
		_, has := q.Args[arg]
		v.refuse(has, "queue %q must not have %s: %s", q.Name, arg, why)
	}
}

// deadLettersToWait reports whether dead letters of q go round to itself. The broker drops a message that goes round
// without a reject, so only a reject may move a message out of such a queue.
func (v *planValidator) deadLettersToWait(q Queue) bool {
	exchange, key, ok := q.DeadLetter()
	return ok && slices.ContainsFunc(v.reach(exchange, key), func(name string) bool {
		target := v.queue(name)
		return target != nil && target.Kind == KindRetry
	})
}

// durable: quorum queues lose nothing, and all queues are quorum queues or none is.
func (v *planValidator) durable(q Queue) {
	quorum := q.Args[ArgType] == TypeQuorum
	v.refuse(quorum != v.Quorum, "queue %q: quorum is %t in a plan where it is %t", q.Name, quorum, v.Quorum)
	v.refuse(quorum && q.Kind != KindRetry && q.Args[ArgDeliveryLimit] != NoDeliveryLimit,
		"queue %q needs %s=%d: the broker's own limit drops messages that were requeued often", q.Name, ArgDeliveryLimit,
		NoDeliveryLimit)
	_, _, deadLetters := q.DeadLetter()
	lossless := q.Args[ArgStrategy] == strategyAtLeastOnce && q.Args[ArgOverflow] == overflowReject
	v.refuse(quorum && deadLetters && !lossless,
		"queue %q needs %s=%s and %s=%s: otherwise a killed broker loses dead letters", q.Name, ArgStrategy,
		strategyAtLeastOnce, ArgOverflow, overflowReject)
}
