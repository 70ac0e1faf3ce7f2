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

// textArguments are those whose values are texts; all others are numbers, but for ArgSingleConsumer.
var textArguments = []string{ArgDLX, ArgDLKey, ArgType, ArgStrategy, ArgOverflow, "x-queue-mode",
	"x-queue-leader-locator", "x-queue-master-locator", ArgRetryType}

// FixAttempt is how an attempt becomes shorter.
const FixAttempt = "lower SIDECAR_APP_TIMEOUT, and the larger of SIDECAR_RETRY_AFTER_MAX and " +
	"SIDECAR_REQUEUE_DELAY_MAX, until their sum is"

// rules judge every property and argument that RabbitMQ 3.10 to 4.3 has for classic and quorum queues, and those of
// exchanges. An argument without a rule is unknown here.
//
// A row: for the objects in on, a property of that name is judged so where when holds, for this reason.
// docs/topologies.md has the same table for people.
var rules = []rule{
	{on: mainQueue, properties: []string{PropertyDurable}, judgement: Weaker,
		reason: "a broker that restarts deletes the queue with its messages", fix: "{another}"},
	{on: anyQueue, properties: []string{PropertyDurable}, judgement: Breaks,
		reason: "a broker that restarts deletes the queue with the messages that are kept in it", fix: "{another}"},
	{on: retryQueue, properties: []string{PropertyAutoDelete}, judgement: Weaker,
		reason: "if anything ever consumes from it and stops, the broker deletes the queue with its messages",
		fix:    "{another}"},
	{on: anyQueue, properties: []string{PropertyAutoDelete}, judgement: Breaks,
		reason: "the broker deletes the queue with its messages when its last consumer goes, and a sidecar that pauses is " +
			"no consumer", fix: "{another}"},
	{on: anyQueue, properties: []string{argExpires}, when: set, judgement: Breaks,
		reason: "the broker deletes the queue with its messages after %v ms without a consumer", fix: "{another}"},

	{on: mainQueue, properties: []string{ArgType}, when: both(wantsDelay, value(TypeClassic)), judgement: Breaks,
		reason: "only a quorum queue delays messages itself", fix: "{another}",
		explains: []string{ArgStrategy, ArgOverflow, ArgDeliveryLimit, ArgRetryType, ArgRetryMin, ArgRetryMax}},
	{on: mainQueue, properties: []string{ArgType}, when: both(outlasting, value(TypeClassic)), judgement: Breaks,
		reason: "an attempt can take longer than the half hour after which the broker delivers the message again and " +
			"again: only a quorum queue waits longer", fix: FixAttempt + " at most 25m, or {another}",
		explains: []string{ArgStrategy, ArgOverflow, ArgDeliveryLimit}},
	{on: anyQueue, properties: []string{ArgType}, when: value(TypeQuorum), judgement: Harmless,
		reason: "a quorum queue keeps more than was asked for"},
	{on: mainQueue | retryQueue, properties: []string{ArgType}, when: value(TypeClassic), judgement: Weaker,
		reason: "messages on their way to or from a retry can be lost when the broker is killed",
		fix:    "{any type}", explains: []string{ArgStrategy, ArgOverflow, ArgDeliveryLimit}},
	{on: deadLetterQueue, properties: []string{ArgType}, when: value(TypeClassic), judgement: Weaker,
		reason: "a classic queue is kept by one node of the broker", fix: "{any type}",
		explains: []string{ArgDeliveryLimit}},
	{on: anyQueue, properties: []string{ArgType}, judgement: Breaks,
		reason: "messages of a %v queue are not taken out one by one", fix: "{another}",
		explains: []string{ArgDLX, ArgDLKey, ArgTTL, ArgStrategy, ArgOverflow, ArgDeliveryLimit}},

	{on: mainQueue, properties: []string{ArgDLX, ArgDLKey}, when: both(wantsDelay, differs), judgement: Weaker,
		reason: "a message that the broker takes away, because it killed its consumer too often, goes elsewhere than what " +
			"is parked", explains: []string{ArgDLKey, ArgStrategy, ArgOverflow}},
	{on: mainQueue, properties: []string{ArgDLX, ArgDLKey}, judgement: Harmless,
		reason:   "retries do not need it: they are published, with confirmation, before the original is acked",
		explains: []string{ArgDLKey, ArgStrategy, ArgOverflow}},
	{on: retryQueue, properties: []string{ArgDLX, ArgDLKey}, when: differs, judgement: Breaks,
		reason: "what has waited there does not return to the service's queue", fix: "{another}",
		explains: []string{ArgDLKey, ArgStrategy, ArgOverflow}},
	{on: anyQueue, properties: []string{ArgDLX, ArgDLKey}, judgement: Harmless,
		reason: "it is not used"},

	{on: retryQueue, properties: []string{ArgStrategy, ArgOverflow}, when: mostOnce, judgement: Weaker,
		reason:   "what returns from it can be lost when the broker is killed: its dead-lettering is at most once",
		fix:      "set a policy with dead-letter-strategy=at-least-once and overflow=reject-publish on it, or {another}",
		explains: []string{ArgOverflow}},
	{on: anyQueue, properties: []string{ArgStrategy}, judgement: Harmless,
		reason:   "retries that leave by publish do not depend on it",
		explains: []string{ArgOverflow}},
	{on: anyQueue, properties: []string{ArgOverflow}, judgement: Harmless,
		reason: "it only says what a full queue does"},

	{on: mainQueue, properties: []string{argMaxLength, argMaxBytes}, when: both(rejecting, returnsSafely),
		judgement: Harmless, reason: "a full queue refuses new messages: producers notice, and no retry is lost",
		explains: []string{ArgOverflow}},
	{on: mainQueue, properties: []string{argMaxLength, argMaxBytes}, when: rejecting, judgement: Weaker,
		reason:   "a full queue refuses new messages, and a retry that returns meanwhile is lost",
		fix:      "{quorum}, with new retry queues (SIDECAR_RETRY_QUEUE): retries then wait until there is room",
		explains: []string{ArgOverflow}},
	{on: mainQueue, properties: []string{argMaxLength, argMaxBytes}, when: set, judgement: Weaker,
		reason:   "a full queue drops or dead-letters its oldest message, tried or not",
		fix:      "set a policy with overflow=reject-publish on it",
		explains: []string{ArgOverflow}},
	{on: retryQueue, properties: []string{argMaxLength, argMaxBytes}, when: rejecting, judgement: Harmless,
		reason:   "while it is full, retries are refused and their messages stay in the service's queue",
		explains: []string{ArgOverflow}},
	{on: retryQueue, properties: []string{argMaxLength, argMaxBytes}, when: set, judgement: Weaker,
		reason: "while it is full, the oldest message returns before its delay is over", fix: "{another}",
		explains: []string{ArgOverflow}},
	{on: deadLetterQueue, properties: []string{argMaxLength, argMaxBytes}, when: rejecting, judgement: Harmless,
		reason:   "while it is full, nothing is parked and the message stays in the service's queue",
		explains: []string{ArgOverflow}},
	{on: deadLetterQueue, properties: []string{argMaxLength, argMaxBytes}, when: set, judgement: Weaker,
		reason: "a full queue drops its oldest parked message", fix: "set a policy with overflow=reject-publish on it, " +
			"or {another}",
		explains: []string{ArgOverflow}},

	{on: mainQueue, properties: []string{ArgTTL}, when: both(set, goesRound), judgement: Weaker,
		reason: "messages that are not taken within %v ms are lost: they go round through the retry queue, and the broker " +
			"drops what returns without a reject, or keeps it in a quorum queue and never delivers it"},
	{on: mainQueue, properties: []string{ArgTTL}, when: set, judgement: Weaker,
		reason: "messages leave the queue after %v ms, tried or not: x-death says so, x-final-* headers do not"},
	{on: mainQueue, properties: []string{ArgTTL}, judgement: Harmless, reason: "messages do not expire"},
	{on: retryQueue, properties: []string{ArgTTL}, when: notWaitedIn, judgement: Harmless,
		reason: "no retry waits there: only what the broker itself dead-letters"},
	{on: retryQueue, properties: []string{ArgTTL}, when: differs, judgement: Breaks,
		reason: "its messages do not wait for the delay that was asked for",
		fix:    "set the delay to what it has, or {another}"},
	{on: deadLetterQueue, properties: []string{ArgTTL}, when: set, judgement: Breaks,
		reason: "parked messages are dropped after %v ms", fix: "{another}"},

	{on: mainQueue, properties: []string{ArgDeliveryLimit}, when: negativeBefore4, judgement: Breaks,
		reason: "before RabbitMQ 4.0 a negative limit is one that is already reached: the first message that is given " +
			"back is lost", fix: "{another}"},
	{on: mainQueue, properties: []string{ArgDeliveryLimit}, when: parksEarly, judgement: Breaks,
		reason: "the broker counts each failed attempt, and takes a message away before its retries are used up",
		fix:    "lower SIDECAR_MAX_RETRIES, or {another}"},
	{on: mainQueue, properties: []string{ArgDeliveryLimit}, when: both(wantsDelay, unlimited), judgement: Weaker,
		reason: "nothing ends a message that kills its consumer again and again: it is delivered again after each delay, " +
			"as it was before in a queue that was made for another topology",
		explains: []string{ArgDLX, ArgDLKey, ArgStrategy, ArgOverflow}},
	{on: mainQueue, properties: []string{ArgDeliveryLimit}, when: ampleLimit, judgement: Harmless,
		reason: "it ends what kills its consumer again and again"},
	{on: mainQueue, properties: []string{ArgDeliveryLimit}, when: limitBelow(safeLimit), judgement: Breaks,
		reason: "the broker takes a message away that returns more than %v times without an answer: a few lost " +
			"connections are enough",
		fix: "{another}"},
	{on: mainQueue, properties: []string{ArgDeliveryLimit}, when: both(wantsDelay, limitBelow(NoDeliveryLimit)),
		judgement: Weaker,
		reason: "the broker dead-letters a message that returns more than %v times, retries left or not: it counts the " +
			"failed attempts of all replicas, and lost connections", fix: "lower SIDECAR_MAX_RETRIES, or {another}"},
	{on: mainQueue, properties: []string{ArgDeliveryLimit}, when: limitBelow(NoDeliveryLimit), judgement: Weaker,
		reason: "the broker takes a message away that returns more than %v times without an answer, by crashes or lost " +
			"connections, and {takes}; failed attempts do not count", fix: "{dlq}{another}"},
	{on: mainQueue, properties: []string{ArgDeliveryLimit}, when: brokersOwnLimit, judgement: Weaker,
		reason: "from RabbitMQ 4.0 the broker takes a message away that returns more than 20 times without an answer, by " +
			"crashes or lost connections", fix: "set a policy with delivery-limit=2147483647 on it"},
	{on: anyQueue, properties: []string{ArgDeliveryLimit}, judgement: Harmless,
		reason: "no message reaches it"},

	{on: mainQueue, properties: []string{ArgSingleConsumer}, judgement: Breaks,
		when:   func(f *property) bool { return f.plan.SingleActive && f.value != true },
		reason: "several replicas would handle messages with one key at the same time, and out of order",
		fix:    "SIDECAR_ORDER_SCOPE=replica accepts order within each replica only, or {another}"},
	{on: mainQueue, properties: []string{ArgSingleConsumer}, when: set, judgement: Harmless,
		reason: "one replica gets all messages, and the others wait"},
	{on: deadLetterQueue, properties: []string{ArgSingleConsumer}, when: value(true), judgement: Weaker,
		reason: "while one consumer is connected, the commands and the console cannot read it", fix: "{another}"},
	{on: mainQueue, properties: []string{argConsumerTimeout}, when: shorterThanAttempt, judgement: Breaks,
		reason: "an attempt can take longer than %v ms: the broker then delivers the message again and again",
		fix:    FixAttempt + " below that, or {another}"},
	{on: anyQueue, properties: []string{argConsumerTimeout}, judgement: Harmless,
		reason: "it is longer than any attempt"},
	{on: mainQueue, properties: []string{ArgRetryType}, when: both(wantsDelay, value(nil)), judgement: Weaker,
		reason: "the queue delays nothing unless a policy says so, which cannot be seen: if a rejected message is " +
			"delivered again at once, consumption pauses",
		fix:      "{delay policy}",
		explains: []string{ArgRetryMin, ArgRetryMax}},
	{on: mainQueue, properties: []string{ArgRetryType}, when: both(wantsDelay, value(delayAll)), judgement: Weaker,
		reason: "what a 425, a pause or a stop gives back waits in the broker, too", fix: "{another}"},
	{on: mainQueue, properties: []string{ArgRetryType}, when: both(wantsDelay, differs), judgement: Breaks,
		reason: "a rejected message is delivered again at once", fix: "{another}",
		explains: []string{ArgRetryMin, ArgRetryMax}},
	{on: mainQueue, properties: []string{ArgRetryMin, ArgRetryMax}, when: wantsDelay, judgement: Harmless,
		reason: "the delays of a queue cannot be changed, so retries wait in retry queues beside it, where this user may " +
			"declare them. That costs more: a policy can make the queue's own delays shorter"},
	{on: mainQueue, properties: []string{ArgRetryType}, when: both(set, inOrder), judgement: Breaks,
		reason: "what a lost connection returns waits in the broker, and messages with its key go first",
		fix:    "{another}, or set a policy with delayed-retry-type=disabled on it"},
	{on: mainQueue, properties: []string{ArgRetryType}, when: either(value("returned"), value(delayAll)),
		judgement: Weaker, reason: "what a 425, a pause or a stop gives back waits in the broker once more",
		explains: []string{ArgRetryMin, ArgRetryMax}},
	{on: mainQueue, properties: []string{ArgRetryType}, when: value(delayFailed), judgement: Harmless,
		reason: "only what a lost connection returns waits in the broker", explains: []string{ArgRetryMin, ArgRetryMax}},
	{on: anyQueue, properties: []string{ArgTTL, argExpires, argMaxLength, argMaxBytes, ArgSingleConsumer,
		ArgRetryType, ArgRetryMin, ArgRetryMax, argMaxPriority, "x-queue-mode",
		"x-queue-version", "x-queue-leader-locator",
		"x-queue-master-locator", "x-quorum-initial-group-size", "x-quorum-target-group-size", "x-max-in-memory-length",
		"x-max-in-memory-bytes"}, judgement: Harmless, reason: "retries, parking and counting do not depend on it"},

	{on: mainExchange, properties: []string{PropertyType}, judgement: Breaks,
		reason: "its bindings do not route as the plan needs", fix: "{exchange type}=%v, or {another}"},
	{on: anyExchange, properties: []string{PropertyType}, judgement: Breaks,
		reason: "its bindings do not route as the plan needs", fix: "{another}"},
	{on: anyExchange, properties: []string{PropertyDurable}, judgement: Weaker,
		reason: "a broker that restarts deletes the exchange with its bindings", fix: "{another}"},
	{on: anyExchange, properties: []string{PropertyAutoDelete}, judgement: Weaker,
		reason: "the broker deletes the exchange with its last binding", fix: "{another}"},
	{on: mainExchange, properties: []string{PropertyInternal, ArgAlternate}, judgement: Harmless,
		reason: "the service's queue gets its messages all the same"},
	{on: anyExchange, properties: []string{PropertyInternal}, judgement: Breaks,
		reason: "nothing can be published to it", fix: "{another}"},
	{on: anyExchange, properties: []string{ArgAlternate}, judgement: Weaker,
		reason: "what finds no queue there goes to another exchange instead of being returned", fix: "{another}"},
}

func differs(f *property) bool { return f.value != f.wanted }

func set(f *property) bool { return f.value != nil }

func value(v any) func(*property) bool { return func(f *property) bool { return f.value == v } }

func both(a, b func(*property) bool) func(*property) bool {
	return func(f *property) bool { return a(f) && b(f) }
}

func either(a, b func(*property) bool) func(*property) bool {
	return func(f *property) bool { return a(f) || b(f) }
}

func rejecting(f *property) bool {
	overflow, _ := f.all[ArgOverflow].(string)
	return f.value != nil && (overflow == overflowReject || overflow == "reject-publish-dlx")
}

// goesRound reports whether dead letters of the queue return to it through a retry queue.
func goesRound(f *property) bool {
	q := Queue{Args: f.all}
	exchange, key, ok := q.DeadLetter()
	return ok && slices.ContainsFunc(f.plan.reach(exchange, key), func(name string) bool {
		q := f.plan.queue(name)
		return q != nil && q.Kind == KindRetry
	})
}

// returnsSafely reports whether a retry reaches the service's queue although that is full: a quorum queue refuses
// publishers only, and at-least-once dead-lettering keeps what a classic queue refuses.
func returnsSafely(f *property) bool {
	return f.all[ArgType] == TypeQuorum || !slices.ContainsFunc(f.plan.Queues, func(q Queue) bool {
		return q.Kind == KindRetry && !atLeastOnce(q.asFound())
	})
}

// atLeastOnce reports whether a queue keeps a dead letter until its target has taken it: the broker does so only for
// quorum queues, and only together with reject-publish.
func atLeastOnce(args amqp.Table) bool {
	return args[ArgType] == TypeQuorum && args[ArgStrategy] == strategyAtLeastOnce && args[ArgOverflow] == overflowReject
}

func mostOnce(f *property) bool { return f.all[ArgType] == TypeQuorum && !atLeastOnce(f.all) }

func notWaitedIn(f *property) bool {
	return !slices.ContainsFunc(f.plan.Waits, func(w WaitPath) bool { return w.Queue == f.queue.Name })
}

func negativeBefore4(f *property) bool {
	limit, ok := f.value.(int64)
	return ok && limit < 0 && f.major < 4
}

func limitBelow(most int64) func(*property) bool {
	return func(f *property) bool {
		limit, ok := f.value.(int64)
		return ok && limit >= 0 && limit < most
	}
}

func brokersOwnLimit(f *property) bool {
	return f.value == nil && f.all[ArgType] == TypeQuorum && (f.major == 0 || f.major >= 4)
}

func shorterThanAttempt(f *property) bool {
	ms, ok := amqpvalue.Count(f.value)
	return ok && int64(ms) < f.plan.Attempt.Milliseconds()
}
