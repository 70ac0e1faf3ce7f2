package topologytest

import (
	"maps"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// The objects of the preset fanout for the service orders-svc.
const (
	ownQueue      = "orders.queue.orders-svc"
	waitQueue     = "orders.retry-queue.orders-svc"
	deadQueue     = "orders.dlq.orders-svc"
	mainExchange  = "orders.main-exchange"
	retryExchange = "orders.retry-exchange.orders-svc"
)

// object is an exchange or queue as a user declared it.
type object struct {
	name       string
	kind       string // of an exchange; empty: it is a queue
	args       amqp.Table
	transient  bool
	autoDelete bool
	exclusive  bool // held by another connection
	internal   bool
}

// shape is what exists before the sidecar comes, and what the sidecar has to find.
type shape struct {
	options topology.Options // the preset; none: fanout
	given   []object
	finds   []string // the judgement and the property of each finding, in any order

	policy string // on the service's queue

	early     int  // answers 425 before the message is taken; 0: few
	unhurried bool // delays are those of production: only one retry is tried
	hasty     bool // a retry may return before its delay is over
}

// with returns args and more: names and values by turns.
func with(args amqp.Table, more ...any) amqp.Table {
	all := maps.Clone(args)
	if all == nil {
		all = amqp.Table{}
	}
	for i := 0; i < len(more); i += 2 {
		all[more[i].(string)] = more[i+1] //nolint:forcetypeassert // a name
	}
	return all
}

func queue(name string, args ...any) []object {
	return []object{{name: name, args: with(nil, args...)}}
}

// quorum is the service's queue of fanout as a quorum queue.
func quorum(args ...any) []object {
	return queue(ownQueue, append([]any{"x-queue-type", "quorum"}, args...)...)
}

// waits is the retry queue of fanout with more arguments.
func waits(more ...any) []object {
	planned := amqp.Table{argTTL: brief.Milliseconds(), argDLX: "", argDLKey: ownQueue}
	return []object{{name: waitQueue, args: with(planned, more...)}}
}

const (
	argTTL   = "x-message-ttl"
	argLimit = "x-delivery-limit"
	bare     = "note x-dead-letter-exchange" // of a service queue without a route for dead letters
)

// shapes are what users declare by hand, by name, on a broker of that version.
func shapes(major, minor int) map[string]shape {
	limit := "note x-delivery-limit" // of a quorum queue that does not say it
	if major > 3 {
		limit = "warning x-delivery-limit"
	}
	all := map[string]shape{}
	for _, some := range []map[string]shape{serviceQueues(), quorumQueues(limit), retryQueues(), deadLetterQueues(), exchanges(), bareQueues(limit), delaying()} {
		maps.Copy(all, some)
	}
	if major == 3 {
		all["quorum, limit -1"] = shape{given: quorum(argLimit, -1), finds: []string{bare, "problem x-delivery-limit"}}
	}
	if major == 4 && minor >= 3 {
		maps.Copy(all, newest())
	}
	return all
}

// serviceQueues are classic queues of the service.
func serviceQueues() map[string]shape {
	const hour = 3_600_000
	return map[string]shape{
		"bare":               {given: queue(ownQueue), finds: []string{bare}},
		"priorities":         {given: queue(ownQueue, "x-max-priority", 10), finds: []string{bare, "note x-max-priority"}},
		"limited, rejecting": {given: queue(ownQueue, "x-max-length", 1000, "x-overflow", "reject-publish"), finds: []string{bare, "warning x-max-length"}},
		"limited in bytes":   {given: queue(ownQueue, "x-max-length-bytes", 1_000_000), finds: []string{bare, "warning x-max-length-bytes"}},
		"version 2":          {given: queue(ownQueue, "x-queue-version", 2), finds: []string{bare, "note x-queue-version"}},
		"single active":      {given: queue(ownQueue, "x-single-active-consumer", true), finds: []string{bare, "note x-single-active-consumer"}},
		"message TTL":        {given: queue(ownQueue, argTTL, hour), finds: []string{bare, "warning x-message-ttl"}},
		"dead letters elsewhere": {
			given: []object{{name: "aside", kind: "fanout"}, {name: ownQueue, args: amqp.Table{argDLX: "aside"}}},
			finds: []string{"note x-dead-letter-exchange"},
		},
		"dead letters by another key": {given: queue(ownQueue, argDLX, retryExchange, argDLKey, "other"), finds: []string{"note x-dead-letter-routing-key"}},
		"dead letters into nothing":   {given: queue(ownQueue, argDLX, "no.such.exchange"), finds: []string{bare}},
		"message TTL, round": {
			given: queue(ownQueue, argDLX, retryExchange, argDLKey, "retry", argTTL, hour), finds: []string{"warning x-message-ttl"},
		},
		"auto-delete": {given: []object{{name: ownQueue, autoDelete: true}}, finds: []string{bare, "problem auto_delete"}},
		"expires":     {given: queue(ownQueue, "x-expires", hour), finds: []string{bare, "problem x-expires"}},
		"exclusive":   {given: []object{{name: ownQueue, exclusive: true}}, finds: []string{"problem "}},
		"transient":   {given: []object{{name: ownQueue, transient: true}}, finds: []string{bare, "warning durable"}},
		"stream":      {given: queue(ownQueue, "x-queue-type", "stream"), finds: []string{"problem x-queue-type"}},
	}
}

// quorumQueues are quorum queues of the service.
func quorumQueues(limit string) map[string]shape {
	return map[string]shape{
		"quorum":                   {given: quorum(), finds: []string{bare, limit}, early: 22},
		"quorum, limit 3":          {given: quorum(argLimit, 3), finds: []string{bare, "warning x-delivery-limit"}, early: 8},
		"quorum, limit 2":          {given: quorum(argLimit, 2), finds: []string{bare, "problem x-delivery-limit"}},
		"quorum, limit -1":         {given: quorum(argLimit, -1), finds: []string{bare, "note x-delivery-limit"}, early: 22},
		"quorum, at most once":     {given: quorum(argDLX, retryExchange, argDLKey, "retry"), finds: []string{"note x-dead-letter-strategy", limit}},
		"quorum, group":            {given: quorum("x-quorum-initial-group-size", 1), finds: []string{bare, limit, "note x-quorum-initial-group-size"}},
		"quorum, limited":          {given: quorum("x-max-length", 1000), finds: []string{bare, limit, "warning x-max-length"}},
		"quorum, limited, rejects": {given: quorum("x-max-length", 1000, "x-overflow", "reject-publish"), finds: []string{bare, limit, "note x-max-length"}},
	}
}

// newest are shapes that only a broker from version 4.3 on takes.
func newest() map[string]shape {
	const limit = "warning x-delivery-limit"
	return map[string]shape{
		"long consumer timeout":  {given: quorum("x-consumer-timeout", 3_600_000), finds: []string{bare, limit, "note x-consumer-timeout"}},
		"short consumer timeout": {given: quorum("x-consumer-timeout", 20_000), finds: []string{bare, limit, "problem x-consumer-timeout"}},
		"delayed retries": {
			given: quorum("x-delayed-retry-type", "all", "x-delayed-retry-min", 100, "x-delayed-retry-max", 200),
			finds: []string{bare, limit, "warning x-delayed-retry-type"}, early: 3,
		},
		"delayed after a failure": {
			given: quorum("x-delayed-retry-type", "failed", "x-delayed-retry-min", 100, "x-delayed-retry-max", 200),
			finds: []string{bare, limit, "note x-delayed-retry-type"},
		},
	}
}

// delaying are shapes of the queue of native, on RabbitMQ 4.3.
func delaying() map[string]shape {
	const kind, shortest, longest = "x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max"
	native := topology.Options{Preset: topology.PresetNative, RetryDelay: brief}
	rising := topology.Options{Preset: topology.PresetNative, RetryDelays: []time.Duration{brief, 2 * brief}}
	own := func(more ...any) []object {
		planned := amqp.Table{
			argDLX: "", argDLKey: deadQueue, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish", "x-queue-type": "quorum",
			argLimit: 40, kind: "failed", shortest: brief.Milliseconds(), longest: brief.Milliseconds(),
		}
		args := with(planned, more...)
		maps.DeleteFunc(args, func(_ string, v any) bool { return v == nil })
		return []object{{name: ownQueue, args: args}}
	}
	const delays = `{"delayed-retry-type": "failed", "delayed-retry-min": 150, "delayed-retry-max": 150}`
	const undelayed, elsewhere, limit = "warning x-delayed-retry-type", "warning x-dead-letter-exchange", "warning x-delivery-limit"
	all := map[string]shape{
		"as declared":      {given: own()},
		"by policy, bare":  {given: quorum(), policy: delays, finds: []string{elsewhere, undelayed, limit}},
		"by policy":        {given: own(kind, nil, shortest, nil, longest, nil), policy: delays, finds: []string{undelayed}},
		"shorter policy":   {given: own(shortest, 5000, longest, 5000), options: topology.Options{Preset: topology.PresetNative, RetryDelay: 5 * time.Second}, policy: delays, hasty: true},
		"everything waits": {given: own(kind, "all"), finds: []string{undelayed}, early: 3},
		"returns wait":     {given: own(kind, "returned"), finds: []string{"problem x-delayed-retry-type"}},
		"classic":          {given: queue(ownQueue), finds: []string{elsewhere, "problem x-queue-type"}},
		"other delays":     {given: own(shortest, 100, longest, 900), finds: []string{"note " + longest, "note " + shortest}},
		"one delay":        {options: rising, given: own(longest, 900), finds: []string{"note " + longest}},
		"limit 3":          {given: own(argLimit, 3), finds: []string{limit}, early: 5},
		"limit 1":          {given: own(argLimit, 1), finds: []string{"problem x-delivery-limit"}},
		"dead letters elsewhere": {
			given: append([]object{{name: "aside", kind: "fanout"}}, own(argDLX, "aside", argDLKey, nil)...), finds: []string{elsewhere},
		},
	}
	named := map[string]shape{}
	for name, s := range all {
		if s.options.Preset == "" {
			s.options = native
		}
		named["native, "+name] = s
	}
	return named
}

func retryQueues() map[string]shape {
	const hour = 3_600_000
	return map[string]shape{
		"another delay":            {given: waits(argTTL, hour), finds: []string{"note x-message-ttl"}},
		"no delay":                 {given: queue(waitQueue, argDLX, "", argDLKey, ownQueue), finds: []string{"warning x-message-ttl"}},
		"retries limited":          {given: waits("x-max-length", 1), finds: []string{"warning x-max-length"}, hasty: true},
		"retries limited, rejects": {given: waits("x-max-length", 1, "x-overflow", "reject-publish"), finds: []string{"note x-max-length"}},
		"returns elsewhere":        {given: waits(argDLKey, "elsewhere"), finds: []string{"problem x-dead-letter-routing-key"}},
		"returns nowhere":          {given: queue(waitQueue, argTTL, brief.Milliseconds()), finds: []string{"problem x-dead-letter-exchange"}},
		"retry queue expires":      {given: waits("x-expires", hour), finds: []string{"problem x-expires"}},
		"retry queue auto-delete":  {given: []object{{name: waitQueue, args: waits()[0].args, autoDelete: true}}, finds: []string{"warning auto_delete"}},
		"retry queue at most once": {
			options: topology.Options{QueueType: "quorum"}, given: waits("x-queue-type", "quorum"), finds: []string{"warning x-dead-letter-strategy"},
		},
		"retry queue of the other type": {
			options: topology.Options{QueueType: "quorum"}, given: waits(), finds: []string{"warning x-queue-type"},
		},
	}
}

func deadLetterQueues() map[string]shape {
	return map[string]shape{
		"parked expire":        {given: queue(deadQueue, argTTL, 3_600_000), finds: []string{"problem x-message-ttl"}},
		"parked limited":       {given: queue(deadQueue, "x-max-length", 1000), finds: []string{"warning x-max-length"}},
		"parked limited, kept": {given: queue(deadQueue, "x-max-length", 1000, "x-overflow", "reject-publish"), finds: []string{"note x-max-length"}},
		"parked in quorum":     {given: queue(deadQueue, "x-queue-type", "quorum"), finds: []string{"note x-queue-type"}},
		"parked in classic":    {options: topology.Options{QueueType: "quorum"}, given: queue(deadQueue), finds: []string{"warning x-queue-type"}},
		"parked, one reader":   {given: queue(deadQueue, "x-single-active-consumer", true), finds: []string{"warning x-single-active-consumer"}},
		"parked on":            {given: queue(deadQueue, argDLX, "", argDLKey, "aside"), finds: []string{"note x-dead-letter-exchange", "note x-dead-letter-routing-key"}},
	}
}

func exchanges() map[string]shape {
	alternate := amqp.Table{"alternate-exchange": "amq.fanout"}
	return map[string]shape{
		"main exchange internal":     {given: []object{{name: mainExchange, kind: "fanout", internal: true}}, finds: []string{"note internal"}},
		"main exchange's alternate":  {given: []object{{name: mainExchange, kind: "fanout", args: alternate}}, finds: []string{"note alternate-exchange"}},
		"main exchange topic":        {given: []object{{name: mainExchange, kind: "topic"}}, finds: []string{"problem type"}},
		"retry exchange transient":   {given: []object{{name: retryExchange, kind: "direct", transient: true}}, finds: []string{"warning durable"}},
		"retry exchange auto-delete": {given: []object{{name: retryExchange, kind: "direct", autoDelete: true}}, finds: []string{"warning auto_delete"}},
		"retry exchange internal":    {given: []object{{name: retryExchange, kind: "direct", internal: true}}, finds: []string{"problem internal"}},
		"retry exchange's alternate": {given: []object{{name: retryExchange, kind: "direct", args: alternate}}, finds: []string{"warning alternate-exchange"}},
	}
}

// bareQueues are queues without arguments beside the other presets, and the ladder of another system.
func bareQueues(limit string) map[string]shape {
	bound := func(exchange, key string) []topology.Binding {
		return []topology.Binding{{Exchange: exchange, Key: key}}
	}
	perQueue := topology.Options{Preset: topology.PresetPerQueue, RetryDelay: brief, Prefix: "shop", Exchange: "shop.events", Bindings: bound("shop.events", "order.#")}
	ladder := topology.Options{Preset: topology.PresetDelayLadder, RetryDelays: tiers[:1], Prefix: "shop", Bindings: bound("shop.events", "order.*")}
	letter := topology.Options{Preset: topology.PresetDeadLetter, RetryDelay: brief, Prefix: "shop", Queue: "shop.orders", Bindings: bound("shop", "order.created")}
	demo := topology.Options{Preset: topology.PresetDelayLadder, Prefix: "demo", Queue: "demo.order_processor", Bindings: bound("demo.events", "order.process")}
	topic := topology.Options{Preset: topology.PresetTopicTiers, RetryDelays: tiers[:1]}
	typed := amqp.Table{"x-queue-type": "quorum"}
	given := []object{
		{name: "demo.order_processor", args: with(typed, argDLX, "", argDLKey, "demo.order_processor.dlq")}, {name: "demo.order_processor.dlq", args: typed},
	}
	for tier, delay := range map[string]time.Duration{"2s": 2 * time.Second, "5s": 5 * time.Second, "15s": 15 * time.Second} {
		args := with(typed, argTTL, delay.Milliseconds(), argDLX, "", argDLKey, "demo.order_processor")
		given = append(given, object{name: "demo.order_processor.delay_" + tier, args: args})
	}
	const once, unlimited = "warning x-dead-letter-strategy", "note x-delivery-limit"
	all := map[string]shape{
		"literal ladder": {
			options: demo, given: given, unhurried: true,
			finds: []string{once, once, once, "note x-dead-letter-strategy", limit, unlimited},
		},
	}
	for name, s := range map[string]shape{
		"per queue":    {options: perQueue, given: queue("q.orders-svc")},
		"delay ladder": {options: ladder, given: queue("shop.svc")},
		"topic tiers":  {options: topic, given: queue("orders.svc")},
		"dead letter":  {options: letter, given: queue("shop.orders")},
	} {
		s.finds = []string{bare}
		all[name] = s
		s.given, s.finds = queue(s.given[0].name, topology.ArgType, topology.TypeQuorum), []string{bare, limit}
		all[name+", quorum"] = s
	}
	return all
}
