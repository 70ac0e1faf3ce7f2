package config

import (
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// ConsumeOff is a value of SIDECAR_CONSUME.
const ConsumeOff = "off"

// Service is who consumes, or only sends.
type Service struct {
	// Name of the service, e.g. `wms-cincout`. The part before its first hyphen is the prefix (`wms`) that all services
	// of one family share; a name without a hyphen gets the prefix `default`. `{service}` in names is the whole name.
	Name string `env:"SERVICE" check:"service" otherwise:"required" allowed:"letters, digits, '.', '_' and '-', not starting with '-' or 'amq.'"`

	// `off` is for a service that only sends: no queue is declared, checked or consumed, the app gets neither probes nor
	// messages, and the sidecar is ready when it can publish. Needs `SIDECAR_PUBLISH_ADDR` or `SIDECAR_OUTBOX_DSN`.
	Consume string `env:"CONSUME" envDefault:"on" oneof:"on|off"`

	// Names of [several queues](subscriptions.md): `orders,refunds`. Variables of the sections marked ‡ can be set for one,
	// `SIDECAR_SUB_ORDERS_CONCURRENCY=2`; otherwise `SIDECAR_CONCURRENCY` counts. Unset: one queue without a name.
	Subscriptions []string `env:"SUBSCRIPTIONS" check:"subscriptions" otherwise:"one queue" allowed:"1 to 64 distinct names separated by commas, each of lower-case letters, digits and '-', starting with a letter"`
}

var serviceName = regexp.MustCompile(`^[A-Za-z0-9._][A-Za-z0-9._-]*$`)

var checkReserved = require(func(name string) bool { return !strings.HasPrefix(name, "amq.") },
	"names that start with amq. are reserved by the broker")

// checkPurpose refuses a sidecar that would do nothing at all, and warns about what is set and not used.
func (l *loader) checkPurpose() {
	const name, addr, dsn = "SIDECAR_CONSUME", "SIDECAR_PUBLISH_ADDR", "SIDECAR_OUTBOX_DSN"
	if l.ok(name, addr, dsn) && l.cfg.Service.Consume == ConsumeOff && !l.isSet(addr) && !l.isSet(dsn) {
		l.reject(name, "leaves nothing to do: set %s or %s", addr, dsn)
	}
	for _, v := range []string{"TOKEN", "ROUTING_KEYS", "TIMEOUT"} {
		l.unused(l.warn, "SIDECAR_PUBLISH_"+v, addr, "there is no listener to publish on")
	}
	if !l.isSet(dsn) { // rows that name no exchange go to the alias default
		l.unused(l.warn, "SIDECAR_PUBLISH_EXCHANGES", addr, "there is no listener to publish on")
	}
	l.unused(l.warn, "SIDECAR_OUTBOX_", dsn, "there is no outbox")
	l.unused(l.reject, "SIDECAR_ROUTES_ELSE", "SIDECAR_ROUTES", "there are no routes")
	l.unused(l.reject, "SIDECAR_ORDER_SCOPE", "SIDECAR_ORDER_BY", "there is no order")
}

// unused reports variables with the prefix that are set while on is not: no defaults, and no inherited values.
func (l *loader) unused(report func(name, format string, args ...any), prefix, on, why string) {
	for _, v := range l.variables {
		harmless := v.Scoped && (l.cfg.Subscription != "" && v.from == v.Name || v.text == v.Tag.Get("envDefault"))
		if strings.HasPrefix(v.Name, prefix) && l.isSet(v.Name) && !l.isSet(on) && !v.bad && !harmless {
			report(v.Name, "not used: %s, because %s is not set", why, on)
		}
	}
}

// Disabled is a value of SIDECAR_DEAD_LETTER.
const Disabled = "disabled"

// Topology is which exchanges, queues and bindings there are. An empty field means the preset's own. The tag plan is
// where a plan's file says the same.
type Topology struct {
	// A file with the whole topology as JSON, instead of a preset: `sidecar plan --format json` prints one to begin with.
	// It cannot be combined with the variables below except `SIDECAR_TOPOLOGY_MODE`, nor with `SIDECAR_MAX_RETRIES`,
	// `SIDECAR_RETRY_DELAY` and `SIDECAR_RETRY_DELAYS`. It has at most 1 MiB and is read once, at the start.
	PlanFile string `env:"PLAN_FILE" allowed:"a plan in JSON of at most 1 MiB, as sidecar plan --format json prints it"`

	// The arrangement of exchanges and queues; see the table of presets above.
	Preset string `env:"TOPOLOGY" envDefault:"fanout" oneof:"fanout|topic-tiers|per-queue|delay-ladder|dead-letter|native" plan:"$.name"`

	// `declare`: create missing objects. `verify`: only check them, which needs no configure permission, and consume
	// nothing while one is missing. `none`: do not check.
	Mode string `env:"TOPOLOGY_MODE" envDefault:"declare" oneof:"declare|verify|none"`

	// `auto`: the type of the service's queue, where it exists, else quorum for `delay-ladder` and `native`, and for the
	// others the default type of the virtual host, which is classic unless an operator has changed it. `quorum` loses no message even when the broker is killed and is recommended for new installations; `classic` can
	// lose messages that wait for their retry at that moment. Queues cannot change their type once they exist.
	QueueType string `env:"QUEUE_TYPE" envDefault:"auto" oneof:"auto|classic|quorum" plan:"$.queues[].arguments.x-queue-type"`

	// More arguments that the service's queue is declared with, e.g. `x-max-priority=10,x-max-length=100000`. An existing
	// queue is used with those it has.
	QueueArguments map[string]string `env:"QUEUE_ARGUMENTS" allowed:"'name=value' of arguments of classic or quorum queues, separated by commas" plan:"$.queues[].arguments"`

	// First part of all names.
	Prefix string `env:"PREFIX" check:"name" holds:"{subscription}" derived:"part of SIDECAR_SERVICE before its first hyphen" allowed:"at most 255 bytes, no control characters, not starting with 'amq.'" plan:"$.queues[].name"`

	// The exchange that producers publish to.
	Exchange string `env:"EXCHANGE" check:"exchange" holds:"{subscription}" preset:"see above" allowed:"at most 255 bytes, no control characters; not starting with 'amq.', except 'amq.direct', 'amq.fanout', 'amq.topic', 'amq.headers' and 'amq.match' where the preset names nothing after it" plan:"$.exchanges"`

	// Type of that exchange.
	ExchangeType string `env:"EXCHANGE_TYPE" preset:"fanout for fanout, topic for the others" oneof:"direct|fanout|topic|headers" plan:"$.exchanges[].type"`

	// The queue that is consumed.
	Queue string `env:"QUEUE" check:"name" holds:"{subscription}" preset:"see above; required for dead-letter" allowed:"at most 255 bytes, no control characters, not starting with 'amq.'" plan:"$.queue"`

	// What the queue is bound to, e.g. `orders.events:order.*,orders.events:invoice.#`.
	Bindings []Binding `env:"BINDINGS" holds:"{subscription}" preset:"see above; required for per-queue, delay-ladder and dead-letter" allowed:"'exchange:key', separated by commas; the key may be empty" plan:"$.bindings"`

	// The exchange that leads to the retry queue.
	RetryExchange string `env:"RETRY_EXCHANGE" check:"name" holds:"{subscription}" preset:"see above" allowed:"at most 255 bytes, no control characters, not starting with 'amq.'" plan:"$.waits[].exchange"`

	// The queue where messages wait for their retry; with several delays the first part of the queues' names.
	RetryQueue string `env:"RETRY_QUEUE" check:"name" holds:"{subscription}" preset:"see above" allowed:"at most 255 bytes, no control characters, not starting with 'amq.'" plan:"$.waits[].queue"`

	// The exchange that parked messages go through.
	DLX string `env:"DLX" check:"name" holds:"{subscription}" preset:"see above" allowed:"at most 255 bytes, no control characters, not starting with 'amq.'" plan:"$.park.exchange"`

	// The queue where parked messages end.
	DLQ string `env:"DLQ" check:"name" holds:"{subscription}" preset:"see above" allowed:"at most 255 bytes, no control characters, not starting with 'amq.'" plan:"$.park.queue"`

	// Messages older than this leave the service's queue. Only with `dead-letter`.
	MessageTTL time.Duration `env:"MESSAGE_TTL" otherwise:"none" range:"1ms..1193h2m47.295s" unit:"1ms" plan:"$.queues[].arguments.x-message-ttl"` // 0 = none

	// `disabled`: without a dead-letter queue, a message that has used up its retries is discarded, logged and counted.
	// Only with `dead-letter`.
	DeadLetter string `env:"DEAD_LETTER" envDefault:"enabled" oneof:"enabled|disabled" plan:"$.park"`
}

// maxPlan bounds a plan's file, in bytes.
const maxPlan = 1 << 20

// checkPlanFile reads the plan's file into Config.Plan, and refuses variables that say what the file says.
func (l *loader) checkPlanFile() {
	const name = "SIDECAR_PLAN_FILE"
	if !l.isSet(name) {
		return
	}
	plan, _, err := readRegular(l.cfg.Topology.PlanFile, maxPlan)
	if l.cfg.Plan = plan; err != nil {
		l.reject(name, "%v", err)
	}
	for _, v := range l.variables {
		if path := v.Tag.Get("plan"); path != "" && l.isSet(v.Name) {
			l.reject(v.Name, "cannot be combined with %s: the file says it in %s", name, path)
		}
	}
}

// maxName is the longest name that AMQP can carry, in bytes. The client library answers a longer one by closing the
// whole connection, so such names are refused here.
const maxName = 255

// checkShortString holds for everything AMQP sends as a short string: names and routing keys.
var checkShortString = inTurn(
	require(func(v string) bool { return len(v) <= maxName }, "is longer than 255 bytes"),
	require(utf8.ValidString, "is not UTF-8"),
	require(func(v string) bool { return !strings.ContainsFunc(v, unicode.IsControl) }, "holds a control character"),
)

// checkName checks the name of something the sidecar declares. A Rule judges what the preset makes of the names.
var checkName = inTurn(checkShortString, require(func(v string) bool { return strings.TrimSpace(v) == v },
	"starts or ends with a space"), checkReserved)

// checkExchange allows the main exchange to be one of those that every vhost has.
func checkExchange(v string) error {
	if slices.Contains([]string{"amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"}, v) {
		return nil
	}
	return checkName(v)
}
