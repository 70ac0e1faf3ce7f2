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
	return errors.Join(p.problems(nil)...)
}

// problems lists what Validate joins, without what may follow from values that could not be read.
func (p *Plan) problems(unread []string) []error {
	v := planValidator{Plan: p, unread: unread}
	v.names()
	v.ownQueue()
	v.counts()
	v.bindings()
	v.deadLetters()
	v.waits()
	v.rejects()
	v.parking()
	v.redriving()
	v.arguments()
	return v.errs
}

// planValidator collects while it goes: no rule ends the others.
type planValidator struct {
	*Plan
	errs   []error
	unread []string // JSON paths of values that could not be read or cannot be used: nothing else is said about them
}

// refuse records what is wrong at a JSON path of the plan, unless a value there could not be read.
func (v *planValidator) refuse(wrong bool, path, format string, args ...any) {
	if wrong && v.read(path) {
		v.errs = append(v.errs, fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...)))
	}
}

// unusable is refuse for a value that other rules rest on.
func (v *planValidator) unusable(wrong bool, path, format string, args ...any) {
	v.refuse(wrong, path, format, args...)
	if wrong {
		v.unread = append(v.unread, path)
	}
}

// misrouted is refuse for what is wrong with a route. It records nothing while names, bindings or dead-letter routes
// are unknown: the route might be right.
func (v *planValidator) misrouted(wrong bool, path, format string, args ...any) {
	unknown := slices.ContainsFunc(v.unread, func(u string) bool {
		_, arg, isArg := strings.Cut(u, ".arguments.")
		listed := within(u, at("exchanges")) || within(u, at("queues")) || within(u, at("bindings"))
		return listed && (!isArg || arg == ArgDLX || arg == ArgDLKey)
	})
	v.refuse(wrong && !unknown, path, format, args...)
}

// read reports whether every value at and below a JSON path could be read and can be used.
func (v *planValidator) read(path string) bool {
	return !slices.ContainsFunc(v.unread, func(u string) bool { return within(u, path) || within(path, u) })
}

// within reports whether a JSON path is another one or leads into it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// at returns the JSON path of these steps: a number is an index, a text the name of a field.
func at(steps ...any) string { return below("$", steps...) }

// below is at, from another path on.
func below(base string, steps ...any) string {
	var path strings.Builder
	path.WriteString(base)
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
	key := func(path, key string) {
		fault := nameFault(key)
		v.unusable(fault != "", path, "routing key %s %s", brief(key), fault)
	}
	for i, b := range v.Bindings {
		key(at("bindings", i, "key"), b.Key)
	}
	for i, w := range v.Waits {
		key(at("waits", i, "key"), w.Key)
	}
	key(at("park", "key"), v.Park.Key)
	key(at("redrive", "key"), v.Redrive.Key)
}

// arguments: only those whose effect is known on every supported version, and only those that keep all messages.
func (v *planValidator) arguments() {
	const maxLength, maxBytes, expires = "x-max-length", "x-max-length-bytes", "x-expires"
	known := []string{
		ArgDLX, ArgDLKey, ArgTTL, ArgType, ArgStrategy, ArgOverflow, ArgDeliveryLimit, maxLength, maxBytes, expires,
	}
	for i, q := range v.Queues {
		if !v.read(at("queues", i, "kind")) {
			continue
		}
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
