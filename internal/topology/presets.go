package topology

import (
	"strconv"
	"time"

	"sidecar/internal/message"
)

// blueprint is a preset: names with placeholders, and defaults. {service} and {rest} are the service's name and the
// part after its first hyphen; {prefix}, {exchange}, {queue}, {dlq} and {retry-queue} are the values of these options,
// {tier} is one delay. With subscriptions {rest} and {name} are the subscription's name, and {scope} is behind the
// service's; without, {name} and {scope} are the service's name, and {named} is empty.
type blueprint struct {
	exchanges    []string // the main exchanges, which producers publish to
	exchangeType string
	queue        string // comes to an empty name: it has to be given
	bindingKey   string // of the service's queue on a topic exchange; empty: the bindings have to be given
	queueType    string

	wait wait
	park park

	parksDeadLetters bool // the service's queue dead-letters to where messages are parked, not to where they wait
	redrivesToWait   bool // a redriven message goes where retries wait, not straight to the service's queue
	maxRetries       int  // 0: one for every delay
	countHeader      string

	mayDiscard  bool // MessageTTL and NoDeadLetter have a meaning
	mayNotRetry bool // a list of delays may be empty
}

// wait is how retries wait. A queue that is reached through the default exchange has its name for a key.
type wait struct {
	inQueue      bool   // see ByDelay; only delay has a meaning then
	exchange     string // direct; empty: the default exchange
	shared       bool   // other services declare that exchange too
	queue        string // the only queue, or what the tiers' names start with
	key          string // of the only queue; empty: its name
	tierQueue    string
	tierKey      string // empty: its name
	tier         func(time.Duration) string
	backExchange string // how retries return; empty: the default exchange
	backKey      string
	delay        time.Duration   // one queue, unless tiers are asked for
	delays       []time.Duration // tiers
}

// park is where messages end.
type park struct {
	exchange     string // empty: the default exchange
	exchangeType string
	queue        string
	key          string // to publish with; a fanout exchange is bound without it
	shared       bool   // other services declare the exchange too
	sharedQueue  bool   // and the queue
}

// blueprints are the presets. Code that builds, validates, settles or prints a plan has no branch for one of them.
var blueprints = map[string]*blueprint{
	// main-exchange ─▶ queue ─reject▶ retry-exchange ─▶ retry-queue ─ttl▶ queue
	//                    └─publish▶ dlq
	PresetFanout: {
		exchanges: []string{"{prefix}.main-exchange"}, exchangeType: "fanout",
		queue: "{prefix}.queue.{scope}", bindingKey: "#",
		wait: wait{
			exchange: "{prefix}.retry-exchange.{scope}", queue: "{prefix}.retry-queue.{scope}", key: "retry",
			tierQueue: "{retry-queue}.{tier}", tierKey: "{tier}", tier: TierLabel, backKey: "{queue}", delay: 5 * time.Second,
		},
		park:       park{exchangeType: "direct", queue: "{prefix}.dlq.{scope}", key: "{dlq}"},
		maxRetries: 10,
	},

	// events ─▶ queue ─publish▶ events.retry ─▶ queue.retry.30s ─ttl▶ events ─▶ queue, and every other consumer
	//             └─publish▶ events.dlx ─▶ events.dlq of all services
	PresetTopicTiers: {
		exchanges: []string{"{prefix}.events"}, exchangeType: "topic",
		queue: "{prefix}.{rest}", bindingKey: "{rest}.*",
		wait: wait{
			exchange: "{exchange}.retry", shared: true, queue: "{prefix}.{rest}.retry",
			tierQueue: "{retry-queue}.{tier}", tierKey: "{rest}.{tier}", tier: TierLabel,
			backExchange: "{exchange}", backKey: "{rest}.retry",
			delays: []time.Duration{30 * time.Second, 5 * time.Minute, 30 * time.Minute},
		},
		park: park{
			exchange: "{exchange}.dlx", exchangeType: "fanout", queue: "{exchange}.dlq", key: "{queue}",
			shared: true, sharedQueue: true,
		},
		parksDeadLetters: true,
	},

	// events ─▶ queue ─reject▶ retry.queue ─▶ queue.retry ─ttl▶ queue
	//             └─publish▶ dlq.queue ─▶ queue.dlq
	PresetPerQueue: {
		exchanges: []string{"domain.events", "domain.commands"}, exchangeType: "topic",
		queue: "q.{name}",
		wait: wait{
			exchange: "retry.{queue}", queue: "{queue}.retry", key: "retry",
			tierQueue: "{retry-queue}.{tier}", tierKey: "{tier}", tier: TierLabel, backKey: "{queue}", delay: 15 * time.Second,
		},
		park:           park{exchange: "dlq.{queue}", exchangeType: "direct", queue: "{queue}.dlq", key: "parking"},
		redrivesToWait: true, maxRetries: 3,
	},

	// events ─▶ queue ─publish▶ queue.delay_2s ─ttl▶ queue
	//             └─publish▶ queue.dlq
	PresetDelayLadder: {
		exchanges: []string{"{prefix}.events"}, exchangeType: "topic",
		queue: "{prefix}.{rest}", queueType: TypeQuorum,
		wait: wait{
			queue: "{queue}.delay", tierQueue: "{retry-queue}_{tier}", tier: secondsLabel, backKey: "{queue}",
			delays: []time.Duration{2 * time.Second, 5 * time.Second, 15 * time.Second},
		},
		park:             park{exchangeType: "direct", queue: "{queue}.dlq", key: "{dlq}"},
		parksDeadLetters: true, countHeader: message.HeaderDeliveryCount, mayNotRetry: true,
	},

	// exchange ─▶ queue ─publish▶ queue.retry ─ttl▶ queue
	//               └─publish▶ exchange.dlx ─▶ queue.dlq
	PresetDeadLetter: {
		exchanges: []string{"{prefix}"}, exchangeType: "topic", queue: "{named}",
		wait: wait{
			queue: "{queue}.retry", tierQueue: "{retry-queue}.{tier}", tier: TierLabel, backKey: "{queue}",
			delay: 5 * time.Second,
		},
		park: park{
			exchange: "{exchange}.dlx", exchangeType: "topic", queue: "{queue}.dlq", key: "{dlq}", shared: true,
		},
		parksDeadLetters: true, maxRetries: 4, mayDiscard: true,
	},

	// main-exchange ─▶ queue ─reject▶ queue, which delays it itself
	//                    └─publish▶ dlq
	PresetNative: {
		exchanges: []string{"{prefix}.main-exchange"}, exchangeType: "fanout",
		queue: "{prefix}.queue.{scope}", bindingKey: "#", queueType: TypeQuorum,
		wait:             wait{inQueue: true, delay: 5 * time.Second},
		park:             park{exchangeType: "direct", queue: "{prefix}.dlq.{scope}", key: "{dlq}"},
		parksDeadLetters: true, maxRetries: 10,
	},
}

// secondsLabel writes a delay as delay ladders are named: 300s, not 5m. A delay that is not a whole number of seconds
// is written as usual.
func secondsLabel(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.Itoa(int(d/time.Second)) + "s"
	}
	return TierLabel(d)
}
