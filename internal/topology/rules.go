package topology

import (
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
)

// Arguments of queues that no preset sets.
const (
	argExpires         = "x-expires"
	argMaxLength       = "x-max-length"
	argMaxBytes        = "x-max-length-bytes"
	ArgSingleConsumer  = "x-single-active-consumer"
	argConsumerTimeout = "x-consumer-timeout"
	argMaxPriority     = "x-max-priority"

	// safeLimit is the least delivery limit that is no danger: a smaller one is reached by redeliveries alone.
	safeLimit = 3
	// brokersLimit is the delivery limit from RabbitMQ 4.0 of a quorum queue that names none.
	brokersLimit = 20
)

// knownArguments are all that RabbitMQ 3.10 to 4.3 has for classic and quorum queues, each with a value of its type.
var knownArguments = amqp.Table{
	ArgDLX: "", ArgDLKey: "", ArgType: "", ArgStrategy: "", ArgOverflow: "", ArgRetryType: "", "x-queue-mode": "",
	"x-queue-leader-locator": "", "x-queue-master-locator": "",
	ArgSingleConsumer: true,
	ArgTTL:            int64(0), argExpires: int64(0), argMaxLength: int64(0), argMaxBytes: int64(0),
	ArgDeliveryLimit: int64(0), argConsumerTimeout: int64(0), argMaxPriority: int64(0),
	ArgRetryMin: int64(0), ArgRetryMax: int64(0), "x-queue-version": int64(0),
	"x-quorum-initial-group-size": int64(0), "x-quorum-target-group-size": int64(0),
	"x-max-in-memory-length": int64(0), "x-max-in-memory-bytes": int64(0),
}

// FixAttempt is how an attempt becomes shorter.
var FixAttempt = (&Plan{}).Say(
	"lower {app-timeout}, and the larger of {retry-after-max} and {requeue-delay-max}, until their sum is")

// rules are the properties of existing queues and exchanges that break what the plan promises or weaken it. Every other
// difference is harmless. A row: for the objects in on, a property of that name is judged so where when holds, for this
// reason. docs/topologies.md has the same table for people.
var rules = []rule{
	{on: mainQueue | anyExchange, properties: []string{PropertyDurable}, judgement: Weaker,
		reason: "a broker that restarts deletes it, with its messages or bindings", fix: "{another}"},
	{on: retryQueue | anyExchange, properties: []string{PropertyAutoDelete}, judgement: Weaker,
		reason: "the broker deletes it when its last binding goes, or its last consumer, if anything ever consumes from it",
		fix:    "{another}"},
	{on: anyQueue, properties: []string{PropertyDurable, PropertyAutoDelete, argExpires}, when: set, judgement: Breaks,
		reason: "the broker deletes the queue with its messages: when it restarts (durable=false), when the last consumer " +
			"goes (auto_delete), or after that many ms without one (x-expires); a sidecar that pauses is no consumer",
		fix: "{another}"},

	{on: mainQueue, properties: []string{ArgType}, when: both(wantsDelay, value(TypeClassic)), judgement: Breaks,
		reason: "only a quorum queue delays messages itself", fix: "{another}"},
	{on: mainQueue, properties: []string{ArgType}, when: both(outlasting, value(TypeClassic)), judgement: Breaks,
		reason: "an attempt can take longer than the half hour after which the broker delivers the message again and " +
			"again: only a quorum queue waits longer", fix: FixAttempt + " at most 25m, or {another}"},
	{on: anyQueue, properties: []string{ArgType}, when: value(TypeClassic), judgement: Weaker,
		reason: "a classic queue is kept by one node: when that is killed, messages on their way to or from a retry, or " +
			"parked ones, can be lost", fix: "set {queue-type} to classic"},
	{on: anyQueue, properties: []string{ArgType}, when: otherType, judgement: Breaks,
		reason: "messages of a %v queue are not taken out one by one", fix: "{another}"},

	{on: mainQueue, properties: []string{ArgDLX, ArgDLKey}, when: both(wantsDelay, differs), judgement: Weaker,
		reason: "a message that the broker takes away, because it killed its consumer too often, goes elsewhere than what " +
			"is parked"},
	{on: retryQueue, properties: []string{ArgDLX, ArgDLKey}, when: differs, judgement: Breaks,
		reason: "what has waited there does not return to the service's queue", fix: "{another}"},
	{on: retryQueue, properties: []string{ArgStrategy, ArgOverflow}, when: mostOnce, judgement: Weaker,
		reason: "what returns from it can be lost when the broker is killed: its dead-lettering is at most once",
		fix:    "set a policy with dead-letter-strategy=at-least-once and overflow=reject-publish on it, or {another}"},

	{on: mainQueue, properties: []string{argMaxLength, argMaxBytes}, when: both(rejecting, losesReturns),
		judgement: Weaker,
		reason:    "a full queue refuses new messages, and a retry that returns meanwhile is lost",
		fix:       "set {queue-type} to quorum, with new retry queues ({retry-queue}): retries then wait for room"},
	{on: anyQueue, properties: []string{argMaxLength, argMaxBytes}, when: dropping, judgement: Weaker,
		reason: "while it is full, its oldest message leaves: the service's queue drops or dead-letters it, tried or not; " +
			"from a retry queue it returns before its delay is over; what is parked is lost",
		fix: "set a policy with overflow=reject-publish on it, or {another}"},

	{on: mainQueue, properties: []string{ArgTTL}, when: both(set, goesRound), judgement: Weaker,
		reason: "messages that are not taken within %v ms are lost: they go round through the retry queue, and the broker " +
			"drops what returns without a reject, or keeps it in a quorum queue and never delivers it"},
	{on: mainQueue, properties: []string{ArgTTL}, when: set, judgement: Weaker,
		reason: "messages leave the queue after %v ms, tried or not: x-death says so, x-final-* headers do not"},
	{on: retryQueue, properties: []string{ArgTTL}, when: both(waitedIn, differs), judgement: Breaks,
		reason: "its messages do not wait for the delay that was asked for",
		fix:    "set the delay to what it has, or {another}"},
	{on: deadLetterQueue, properties: []string{ArgTTL}, when: set, judgement: Breaks,
		reason: "parked messages are dropped after %v ms", fix: "{another}"},

	{on: mainQueue, properties: []string{ArgDeliveryLimit}, when: negativeBefore4, judgement: Breaks,
		reason: "before RabbitMQ 4.0 a negative limit is one that is already reached: the first message that is given " +
			"back is lost", fix: "{another}"},
	{on: mainQueue, properties: []string{ArgDeliveryLimit}, when: parksEarly, judgement: Breaks,
		reason: "the broker counts each failed attempt, and takes a message away before its retries are used up",
		fix:    "lower {max-retries}, or {another}"},
	{on: mainQueue, properties: []string{ArgDeliveryLimit}, when: both(wantsDelay, unlimited), judgement: Weaker,
		reason: "nothing ends a message that kills its consumer again and again: it is delivered again after each delay, " +
			"as it was before in a queue that was made for another topology"},
	{on: mainQueue, properties: []string{ArgDeliveryLimit}, when: limitBelow(safeLimit), judgement: Breaks,
		reason: "the broker takes a message away that returns more than %v times without an answer: a few lost " +
			"connections are enough", fix: "{another}"},
	{on: mainQueue, properties: []string{ArgDeliveryLimit}, when: both(wantsDelay, limitBelow(NoDeliveryLimit)),
		judgement: Weaker,
		reason: "the broker dead-letters a message that returns more than %v times, retries left or not: it counts the " +
			"failed attempts of all replicas, and lost connections", fix: "lower {max-retries}, or {another}"},
	{on: mainQueue, properties: []string{ArgDeliveryLimit}, when: limitBelow(NoDeliveryLimit), judgement: Weaker,
		reason: "the broker takes a message away that returns more than %v times without an answer, by crashes or lost " +
			"connections, and {takes}; failed attempts do not count", fix: "{another}"},
	{on: mainQueue, properties: []string{ArgDeliveryLimit}, when: brokersOwnLimit, judgement: Weaker,
		reason: "from RabbitMQ 4.0 the broker takes a message away that returns more than 20 times without an answer, by " +
			"crashes or lost connections", fix: "set a policy with delivery-limit=2147483647 on it"},

	{on: mainQueue, properties: []string{ArgSingleConsumer}, when: shared, judgement: Breaks,
		reason: "several replicas would handle messages with one key at the same time, and out of order",
		fix:    "{order-scope}=replica accepts order within each replica only, or {another}"},
	{on: deadLetterQueue, properties: []string{ArgSingleConsumer}, when: value(true), judgement: Weaker,
		reason: "while one consumer is connected, the commands and the console cannot read it", fix: "{another}"},
	{on: mainQueue, properties: []string{argConsumerTimeout}, when: shorterThanAttempt, judgement: Breaks,
		reason: "an attempt can take longer than %v ms: the broker then delivers the message again and again",
		fix:    FixAttempt + " below that, or {another}"},

	{on: mainQueue, properties: []string{ArgRetryType}, when: both(wantsDelay, value(nil)), judgement: Weaker,
		reason: "the queue delays nothing unless a policy says so, which cannot be seen: if a rejected message is " +
			"delivered again at once, consumption pauses",
		fix: "{delay policy}"},
	{on: mainQueue, properties: []string{ArgRetryType}, when: both(set, inOrder), judgement: Breaks,
		reason: "what a lost connection returns waits in the broker, and messages with its key go first",
		fix:    "{another}, or set a policy with delayed-retry-type=disabled on it"},
	{on: mainQueue, properties: []string{ArgRetryType}, when: delaysReturned, judgement: Weaker,
		reason: "what a 425, a pause or a stop gives back waits in the broker, too", fix: "{another}"},
	{on: mainQueue, properties: []string{ArgRetryType}, when: both(wantsDelay, differs), judgement: Breaks,
		reason: "a rejected message is delivered again at once", fix: "{another}"},

	{on: mainQueue, properties: []string{ArgRetryMin, ArgRetryMax}, when: keepsDelays, judgement: Weaker,
		reason: "retries wait by its delays, because no queue with other delays can be declared beside it"},

	{on: mainExchange, properties: []string{PropertyType}, judgement: Breaks,
		reason: "its bindings do not route as the plan needs", fix: "set {exchange-type} to %v, or {another}"},
	{on: anyExchange, properties: []string{PropertyType}, judgement: Breaks,
		reason: "its bindings do not route as the plan needs", fix: "{another}"},
	{on: retryExchange | parkExchange, properties: []string{PropertyInternal}, judgement: Breaks,
		reason: "nothing can be published to it", fix: "{another}"},
	{on: retryExchange | parkExchange, properties: []string{ArgAlternate}, judgement: Weaker,
		reason: "what finds no queue there goes to another exchange instead of being returned", fix: "{another}"},
}

// Conditions of rules.

func differs(f *property) bool { return f.value != f.wanted }

func set(f *property) bool { return f.value != nil }

func value(v any) func(*property) bool { return func(f *property) bool { return f.value == v } }

func both(a, b func(*property) bool) func(*property) bool {
	return func(f *property) bool { return a(f) && b(f) }
}

func otherType(f *property) bool { return f.value != TypeQuorum }

func rejecting(f *property) bool {
	overflow, _ := f.all[ArgOverflow].(string)
	return f.value != nil && (overflow == overflowReject || overflow == "reject-publish-dlx")
}

func dropping(f *property) bool { return f.value != nil && !rejecting(f) }

// goesRound reports whether dead letters of the queue return to it through a retry queue.
func goesRound(f *property) bool {
	q := Queue{Args: f.all}
	exchange, key, ok := q.DeadLetter()
	return ok && slices.ContainsFunc(f.plan.reach(exchange, key), func(name string) bool {
		q := f.plan.queue(name)
		return q != nil && q.Kind == KindRetry
	})
}

// losesReturns reports whether a retry is lost that returns to the service's queue while that is full. A quorum queue
// refuses publishers only, and at-least-once dead-lettering keeps what a classic queue refuses.
func losesReturns(f *property) bool {
	return f.all[ArgType] != TypeQuorum && slices.ContainsFunc(f.plan.Queues, func(q Queue) bool {
		return q.Kind == KindRetry && !atLeastOnce(q.asFound())
	})
}

// atLeastOnce reports whether a queue keeps a dead letter until its target has taken it: the broker does so only for
// quorum queues, and only together with reject-publish.
func atLeastOnce(args amqp.Table) bool {
	return args[ArgType] == TypeQuorum && args[ArgStrategy] == strategyAtLeastOnce && args[ArgOverflow] == overflowReject
}

func mostOnce(f *property) bool { return f.all[ArgType] == TypeQuorum && !atLeastOnce(f.all) }

func waitedIn(f *property) bool {
	return slices.ContainsFunc(f.plan.Waits, func(w WaitPath) bool { return w.Queue == f.queue.Name })
}

func negativeBefore4(f *property) bool {
	limit, ok := f.value.(int64)
	return ok && limit < 0 && f.major < 4
}

func limitBelow(most int64) func(*property) bool {
	return func(f *property) bool {
		limit, ok := f.value.(int64)
		return ok && limit >= 0 && limit < most && !ampleLimit(f)
	}
}

func brokersOwnLimit(f *property) bool {
	return f.value == nil && f.all[ArgType] == TypeQuorum && (f.major == 0 || f.major >= 4)
}

func shared(f *property) bool { return f.plan.SingleActive && f.value != true }

func shorterThanAttempt(f *property) bool {
	ms, ok := amqpvalue.Count(f.value)
	return ok && int64(ms) < f.plan.Attempt.Milliseconds()
}

// keepsDelays reports whether the queue exists with other delays than planned, and retries wait in it all the same.
func keepsDelays(f *property) bool {
	return set(f) && differs(f) && f.plan.Adopts && f.plan.DelaysItself()
}

// delaysReturned reports whether the queue delays what is given back by a nack, of a plan that does not ask for it.
func delaysReturned(f *property) bool {
	return f.value == delayAll || f.value == delayReturned && !wantsDelay(f)
}

func wantsDelay(f *property) bool {
	own := f.plan.OwnQueue()
	return own != nil && own.Args[ArgRetryType] == delayFailed
}

// parksEarly reports whether the broker takes messages away that have retries left: rejects count, too.
func parksEarly(f *property) bool {
	limit, finite := amqpvalue.Count(f.value)
	if f.value == nil && f.all[ArgType] == TypeQuorum {
		limit, finite = brokersLimit, true
	}
	return wantsDelay(f) && finite && limit < f.plan.MaxRetries
}

func unlimited(f *property) bool {
	limit, ok := f.value.(int64)
	return ok && (limit < 0 || limit >= NoDeliveryLimit)
}

func ampleLimit(f *property) bool {
	limit, finite := f.value.(int64)
	return wantsDelay(f) && finite && limit >= ownLimit(f.plan.MaxRetries)
}

func inOrder(f *property) bool { return f.plan.InPlace && f.value != delayNothing }

func outlasting(f *property) bool { return f.plan.Attempt > MaxHeld }
