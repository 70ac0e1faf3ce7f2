package topology

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Validate reports everything in the plan by which a broker of any version could lose messages, joined. Each error
// begins with a JSON path such as $.queues[2].arguments.x-message-ttl. Each rule was learned from a loss;
// docs/topologies.md has the stories. It talks to no broker: a valid plan can still meet objects that do not fit, see
// declare.Ensure.
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

// refuse records what is wrong at a JSON path of the plan.
func (v *planValidator) refuse(wrong bool, path, format string, args ...any) {
	if wrong {
		v.errs = append(v.errs, fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...)))
	}
}

// at returns the JSON path of these steps: a number is an index, a text the name of a field.
func at(steps ...any) string {
	var path strings.Builder
	path.WriteString("$")
	for _, step := range steps {
		switch name, isName := step.(string); {
		case !isName:
			fmt.Fprintf(&path, "[%d]", step)
		case plainField.MatchString(name):
			path.WriteString("." + name)
		default:
			fmt.Fprintf(&path, "[%q]", name)
		}
	}
	return path.String()
}

var plainField = regexp.MustCompile(`^[$\w-]+$`)

// argument returns the JSON path of an argument of the queue with that name.
func (v *planValidator) argument(queue, arg string) string {
	i := slices.IndexFunc(v.Queues, func(q Queue) bool { return q.Name == queue })
	return at("queues", i, "arguments", arg)
}

func (v *planValidator) names() {
	seen := map[string]bool{}
	check := func(list string, i int, what, name string) {
		path, fault := at(list, i, "name"), objectFault(name)
		v.refuse(name == "", path, "%s has no name", what)
		v.refuse(fault != "", path, "%s %s %s", what, brief(name), fault)
		v.refuse(seen[what+name], path, "%s %q has two roles: names must differ", what, name)
		seen[what+name] = true
	}
	for i, e := range v.Exchanges {
		check("exchanges", i, "exchange", e.Name)
		path := at("exchanges", i, "type")
		v.refuse(e.Type != "" && !slices.Contains(exchangeTypes, e.Type), path, "exchange %q has type %q: use %s", e.Name,
			e.Type, strings.Join(exchangeTypes, ", "))
		t := predeclared[e.Name]
		v.refuse(t != "" && e.Type != "" && e.Type != t, path, "exchange %q is the broker's own and of type %s, not %s",
			e.Name, t, e.Type)
	}
	for i, q := range v.Queues {
		check("queues", i, "queue", q.Name)
	}
	for i, b := range v.Bindings {
		fault := nameFault(b.Key)
		v.refuse(fault != "", at("bindings", i, "key"), "binding key %s %s", brief(b.Key), fault)
	}
}

func (v *planValidator) ownQueue() {
	q := v.queue(v.Queue)
	v.refuse(q == nil || q.Kind != KindMain, at("queue"), "the service's queue %q is not in the plan", v.Queue)
	v.refuse(v.MaxRetries < 0, at("max_retries"), "max retries is %d: at least 0", v.MaxRetries)
	v.refuse(v.MaxRetries > 0 && len(v.Waits) == 0, at("max_retries"),
		"max retries is %d, but there is no queue to wait in", v.MaxRetries)
}

// references: nothing is bound or dead-lettered to something that is not in the plan.
func (v *planValidator) references() {
	for i, b := range v.Bindings {
		exchange, queue := at("bindings", i, "exchange"), at("bindings", i, "queue")
		v.refuse(b.Exchange == "", exchange, "queue %q cannot be bound to the default exchange", b.Queue)
		v.refuse(b.Exchange != "" && v.exchange(b.Exchange) == nil, exchange,
			"queue %q is bound to exchange %q, which is not in the plan", b.Queue, b.Exchange)
		v.refuse(v.queue(b.Queue) == nil, queue, "binding of %q: queue %q is not in the plan", b.Exchange, b.Queue)
	}
	for _, q := range v.Queues {
		exchange, key, ok := q.DeadLetter()
		v.refuse(ok && len(v.reach(exchange, key)) == 0, v.argument(q.Name, ArgDLX), "queue %q dead-letters to "+
			"exchange %q with key %q, which reaches no queue: its dead letters would be lost", q.Name, exchange, key)
	}
}

// waits: one queue per delay, because in a queue of mixed delays the message in front holds up the others; each one
// is reached by its route alone and leads back to the service's queue.
func (v *planValidator) waits() {
	seen := map[string]bool{}
	for i, w := range v.Waits {
		path := at("waits", i)
		q := v.queue(w.Queue)
		if q == nil {
			v.refuse(true, path+".queue", "wait path %s: queue %q is not in the plan", w.Tier, w.Queue)
			continue
		}
		v.refuse(seen[w.Queue], path+".queue", "wait path %s shares queue %q: every delay needs a queue of its own", w.Tier,
			w.Queue)
		seen[w.Queue] = true
		if i > 0 {
			before := v.Waits[i-1]
			v.refuse(w.Delay <= before.Delay, path+".delay", "wait path %s follows %s: delays must be ascending", w.Tier,
				before.Tier)
		}
		ttl, _ := q.Args[ArgTTL].(int64)
		v.refuse(ttl != w.Delay.Milliseconds() || ttl <= 0, v.argument(w.Queue, ArgTTL),
			"wait path %s: queue %q holds messages for %d ms, not %d", w.Tier, w.Queue, ttl, w.Delay.Milliseconds())
		v.refuse(!v.reachesOnly(w.Route), path, "wait path %s: exchange %q with key %q does not reach %q alone", w.Tier,
			w.Exchange, w.Key, w.Queue)
		exchange, key, ok := q.DeadLetter()
		v.refuse(!ok || !slices.Contains(v.reach(exchange, key), v.Queue), v.argument(w.Queue, ArgDLX),
			"wait path %s: queue %q does not lead back to %q", w.Tier, w.Queue, v.Queue)
		// Other listeners of the exchange get the retry too. By the stamp their sidecars recognise that it is not for them.
		v.refuse(exchange != "" && !v.StampQueue, at("stamp_queue"), "wait path %s returns through exchange %q, which "+
			"others may be bound to: the plan has to stamp its retries", w.Tier, exchange)
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
	for i, w := range v.Waits {
		if !w.ByReject {
			continue
		}
		rejects++
		v.refuse(rejects > 1, at("waits", i, "by"),
			"wait path %s: a second path cannot leave by reject, a queue has one dead-letter route", w.Tier)
		v.refuse(!ok || !v.reachesOnly(Route{exchange, key, w.Queue}), at("waits", i, "by"),
			"wait path %s leaves by reject, but queue %q does not dead-letter to %q alone", w.Tier, q.Name, w.Queue)
	}
}

func (v *planValidator) reachesOnly(r Route) bool {
	return slices.Equal(v.reach(r.Exchange, r.Key), []string{r.Queue})
}

// parking: what is parked stays alone.
func (v *planValidator) parking() {
	r := v.Park
	if r == (Route{}) {
		return
	}
	q := v.queue(r.Queue)
	v.refuse(q == nil || q.Kind != KindDLQ, at("park", "queue"), "parking: dead-letter queue %q is not in the plan",
		r.Queue)
	v.refuse(!v.reachesOnly(r), at("park"), "parking: exchange %q with key %q does not reach %q alone", r.Exchange, r.Key,
		r.Queue)
	x := v.exchange(r.Exchange)
	v.refuse(x != nil && x.Type == "topic" && pattern(r.Key), at("park", "key"),
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
			v.refuse(!slices.Contains(known, arg), v.argument(q.Name, arg),
				"queue %q: argument %s is not used: brokers refuse, ignore or differ on it", q.Name, arg)
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
		v.refuse(has, v.argument(q.Name, arg), "queue %q must not have %s: %s", q.Name, arg, why)
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
	v.refuse(quorum != v.Quorum, v.argument(q.Name, ArgType), "queue %q: quorum is %t in a plan where it is %t", q.Name,
		quorum, v.Quorum)
	v.refuse(quorum && q.Kind != KindRetry && q.Args[ArgDeliveryLimit] != NoDeliveryLimit,
		v.argument(q.Name, ArgDeliveryLimit), "queue %q needs %s=%d: the broker's own limit drops messages that "+
			"were requeued often", q.Name, ArgDeliveryLimit, NoDeliveryLimit)
	_, _, deadLetters := q.DeadLetter()
	lossless := q.Args[ArgStrategy] == strategyAtLeastOnce && q.Args[ArgOverflow] == overflowReject
	v.refuse(quorum && deadLetters && !lossless, v.argument(q.Name, ArgStrategy),
		"queue %q needs %s=%s and %s=%s: otherwise a killed broker loses dead letters", q.Name, ArgStrategy,
		strategyAtLeastOnce, ArgOverflow, overflowReject)
}
