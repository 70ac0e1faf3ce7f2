package topology

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

func (v *planValidator) field(queue string, steps ...any) string {
	i := slices.IndexFunc(v.Queues, func(q Queue) bool { return q.Name == queue })
	return below(at("queues", i), steps...)
}

func (v *planValidator) argument(queue, arg string) string { return v.field(queue, "arguments", arg) }

// ownQueue: without it nothing else is said about routes to it.
func (v *planValidator) ownQueue() {
	if v.queue(v.Queue) == nil {
		v.misrouted(true, at("queue"), "the service's queue %q is not in the plan", v.Queue)
		v.unread = append(v.unread, at("queue"))
	}
	if !v.read(at("queue")) {
		return
	}
	for i, q := range v.Queues {
		own, path := q.Name == v.Queue, at("queues", i, "kind")
		v.refuse(own && q.Kind != KindMain, path, "queue %q is the service's: its kind is %s, not %s", q.Name, KindMain,
			q.Kind)
		v.refuse(!own && q.Kind == KindMain, path,
			"queue %q is not the service's: only %q is of kind %s", q.Name, v.Queue, q.Kind)
	}
}

// counts checks the number of retries, and the header that repeats it for other consumers.
func (v *planValidator) counts() {
	path := at("max_retries")
	v.refuse(v.MaxRetries < 0 || v.MaxRetries > maxRetriesLimit, path, "max retries is %d: at least 0, at most %d",
		v.MaxRetries, maxRetriesLimit)
	v.refuseBoth(v.MaxRetries > 0 && len(v.Waits) == 0 && v.read(at("waits")), path, at("waits"),
		"max retries is %d, but there is no queue to wait in", v.MaxRetries)
	h, fault := v.CountHeader, nameFault(v.CountHeader)
	v.refuse(fault != "", at("count_header"), "header %s %s", brief(h), fault)
	taken := senderSelected(h) || deathRecord(h) || slices.ContainsFunc(ownHeaders, func(prefix string) bool {
		return strings.HasPrefix(h, prefix)
	})
	v.refuse(taken, at("count_header"), "header %q has another meaning to the broker or the sidecar", h)
}

// ownHeaders are the beginnings of the names of the headers that republished messages get.
var ownHeaders = []string{"x-retry-", "x-original-", "x-final-", "x-redriven-"}

// bindings: nothing is bound to or by something that is not in the plan.
func (v *planValidator) bindings() {
	matches := []any{nil, "all", "any", "all-with-x", "any-with-x"}
	for i, b := range v.Bindings {
		exchange := at("bindings", i, "exchange")
		v.refuse(b.Exchange == "", exchange, "queue %q cannot be bound to the default exchange", b.Queue)
		x := v.exchange(b.Exchange)
		v.misrouted(b.Exchange != "" && x == nil, exchange, "queue %q is bound to exchange %q, which is not in the plan",
			b.Queue, b.Exchange)
		v.misrouted(v.queue(b.Queue) == nil, at("bindings", i, "queue"),
			"binding of %q: queue %q is not in the plan", b.Exchange, b.Queue)
		match := b.Args[argMatch]
		v.refuse(x != nil && x.Type == "headers" && !slices.Contains(matches, match),
			at("bindings", i, "arguments", argMatch), "binding of %q: %v is not one of all, any, all-with-x, "+
				"any-with-x", b.Exchange, match)
	}
}

// argMatch is the argument of a binding to a headers exchange that says how many of the others have to match.
const argMatch = "x-match"

// deadLetters: the broker loses a dead letter that reaches no queue without a trace.
func (v *planValidator) deadLetters() {
	for _, q := range v.Queues {
		exchange, key, ok := q.DeadLetter()
		path := v.argument(q.Name, ArgDLX)
		if key != "" {
			path = v.argument(q.Name, ArgDLKey)
		}
		v.misrouted(ok && len(v.reach(exchange, key)) == 0, path, "queue %q dead-letters to exchange %q with key %q, which "+
			"reaches no queue: its dead letters would be lost", q.Name, exchange, key)
	}
}

// waits: one queue per delay, because in a queue of mixed delays the message in front holds up the others; each one
// is reached by its route alone and leads back to the service's queue.
func (v *planValidator) waits() {
	seen := map[string]bool{}
	for i, w := range v.Waits {
		path := at("waits", i)
		v.unusable(w.Delay < time.Millisecond || w.Delay > maxTTL || w.Delay%time.Millisecond != 0, path+".delay",
			"wait path %s: 1ms to %s, in whole milliseconds", w.Tier(), maxTTL)
		q := v.queue(w.Queue)
		if q == nil {
			v.misrouted(true, path+".queue", "wait path %s: queue %q is not in the plan", w.Tier(), w.Queue)
			continue
		}
		if w.By == ByDelay {
			v.waitInQueue(path, &w, q)
			continue
		}
		v.refuse(seen[w.Queue], path+".queue", "wait path %s shares queue %q: every delay needs a queue of its own", w.Tier(),
			w.Queue)
		seen[w.Queue] = true
		if i > 0 && v.read(at("waits", i-1, "delay")) {
			before := v.Waits[i-1]
			v.refuse(w.Delay <= before.Delay, path+".delay", "wait path %s follows %s: delays must be ascending", w.Tier(),
				before.Tier())
		}
		v.misrouted(!v.reachesOnly(w.Route), path, "wait path %s: exchange %q with key %q does not reach %q alone", w.Tier(),
			w.Exchange, w.Key, w.Queue)
		v.waitQueue(path, &w, q)
	}
}

func (v *planValidator) waitQueue(path string, w *WaitPath, q *Queue) {
	v.refuse(q.Kind != KindRetry, v.field(q.Name, "kind"), "queue %q is of kind %s, but messages wait in it: use %s",
		q.Name, q.Kind, KindRetry)
	v.refuse(q.Args[ArgTTL] != w.Delay.Milliseconds() && v.read(path+".delay"), v.argument(w.Queue, ArgTTL),
		"wait path %s: %s of queue %q must be the number %d and is %s", w.Tier(), ArgTTL, w.Queue, w.Delay.Milliseconds(),
		argumentText(q.Args[ArgTTL]))
	exchange, key, ok := q.DeadLetter()
	v.misrouted((!ok || !slices.Contains(v.reach(exchange, key), v.Queue)) && v.read(at("queue")),
		v.argument(w.Queue, ArgDLX), "wait path %s: queue %q does not lead back to %q", w.Tier(), w.Queue, v.Queue)
	// Other listeners of the exchange get the retry too. By the stamp their sidecars recognise that it is not for them.
	v.refuse(exchange != "" && !v.StampQueue, at("stamp_queue"), "wait path %s returns through exchange %q, which others "+
		"may be bound to: the plan has to stamp its retries", w.Tier(), exchange)
}

// waitInQueue checks the service's queue where it delays what is rejected itself.
func (v *planValidator) waitInQueue(path string, w *WaitPath, q *Queue) {
	v.refuse(q.Name != v.Queue || len(v.Waits) > 1, path+".by", "wait path %s: only the service's queue delays messages "+
		"itself, and then it is the only place to wait", w.Tier())
	if q.Name != v.Queue {
		return
	}
	v.refuse(q.Args[ArgType] != TypeQuorum, v.argument(q.Name, ArgType), "queue %q must be a quorum queue to delay "+
		"messages itself", q.Name)
	v.refuse(q.Args[ArgRetryType] != delayFailed, v.argument(q.Name, ArgRetryType), "queue %q must have %s=%s: messages "+
		"are rejected to be delayed in it, and given back to come at once", q.Name, ArgRetryType, delayFailed)
	v.refuse(q.Args[ArgRetryMin] != w.Delay.Milliseconds() && v.read(path+".delay"), v.argument(q.Name, ArgRetryMin),
		"wait path %s: %s of queue %q must be the number %d and is %s", w.Tier(), ArgRetryMin, q.Name,
		w.Delay.Milliseconds(), argumentText(q.Args[ArgRetryMin]))
	longest, ok := q.Args[ArgRetryMax].(int64)
	v.refuse(!ok || longest < w.Delay.Milliseconds(), v.argument(q.Name, ArgRetryMax),
		"wait path %s: %s of queue %q must be a number of at least that and is %s", w.Tier(), ArgRetryMax, q.Name,
		argumentText(q.Args[ArgRetryMax]))
}

// argumentText writes the value of an argument so that a text differs from a number.
func argumentText(v any) string {
	if v == nil {
		return "not set"
	}
	return fmt.Sprintf("%#v", v)
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
		if w.By != ByReject {
			continue
		}
		rejects++
		v.refuse(rejects > 1, at("waits", i, "by"),
			"wait path %s: a second path cannot leave by reject, a queue has one dead-letter route", w.Tier())
		v.misrouted((!ok || !v.reachesOnly(Route{exchange, key, w.Queue})) && v.read(v.argument(q.Name, ArgDLX)),
			at("waits", i, "by"), "wait path %s leaves by reject, but queue %q does not dead-letter to %q alone", w.Tier(),
			q.Name, w.Queue)
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
	if q == nil {
		v.misrouted(true, at("park", "queue"), "parking: dead-letter queue %q is not in the plan", r.Queue)
		return
	}
	v.refuse(q.Kind != KindDLQ, v.field(q.Name, "kind"), "queue %q is of kind %s, but messages are parked in it: use %s",
		q.Name, q.Kind, KindDLQ)
	v.misrouted(!v.reachesOnly(r), at("park"), "parking: exchange %q with key %q does not reach %q alone", r.Exchange,
		r.Key, r.Queue)
	x := v.exchange(r.Exchange)
	v.refuse(x != nil && x.Type == "topic" && pattern(r.Key), at("park", "key"),
		"parking: the key %q is a pattern to topic exchange %q: it would match what others park", r.Key, r.Exchange)
}

// redriving: what is taken out of the dead-letter queue reaches the service's queue, at once or after a wait.
func (v *planValidator) redriving() {
	r := v.Redrive
	v.misrouted(!v.reachesOnly(r) && v.read(at("queue")), at("redrive"), "redriving: exchange %q "+
		"with key %q does not reach %q alone", r.Exchange, r.Key, r.Queue)
	q := v.queue(r.Queue)
	if q == nil || q.Name == v.Queue {
		return
	}
	exchange, key, ok := q.DeadLetter()
	v.misrouted((!ok || !slices.Contains(v.reach(exchange, key), v.Queue)) && v.read(at("queue")), at("redrive", "queue"),
		"redriving: queue %q does not lead to %q", q.Name, v.Queue)
}

// pattern reports whether a topic exchange takes a key for more than itself.
func pattern(key string) bool {
	words := strings.Split(key, ".")
	return slices.Contains(words, "*") || slices.Contains(words, "#")
}
