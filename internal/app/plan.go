package app

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/config"
	"sidecar/internal/dispatch"
	"sidecar/internal/outbox"
	"sidecar/internal/retry"
	"sidecar/internal/topology"
)

// ErrConfig is a mistake of the configuration that shows only when a part is built from it.
var ErrConfig = errors.New("configuration")

// Rule is a config.Rule: Load reports the mistakes of the topology, what keeps subscriptions from running in one
// sidecar, and an unusable connection string of the outbox, with the other mistakes.
func Rule(cfg *config.Config, before []*config.Config, reject func(variables []string, reasons ...string)) {
	if cfg.Topology.PlanFile != "" {
		if _, err := parsePlan(cfg); err != nil {
			reject([]string{"SIDECAR_PLAN_FILE"}, strings.Split(err.Error(), "\n")...)
		}
	} else {
		for _, m := range topology.ValidateOptions(planOptions(cfg)) {
			reject(m.Variables, m.Reason)
		}
	}
	checkBeside(cfg, before, reject)
	reject([]string{"SIDECAR_ROUTES"}, dispatch.CheckRoutes(cfg.App.Routes)...)
	reject([]string{"SIDECAR_PASSTHROUGH_HEADERS"}, dispatch.CheckPassthrough(cfg.Request.PassthroughHeaders)...)
	checkDelays(cfg, reject)
	dsn, err := cfg.Outbox.DSN.Value()
	if err != nil || dsn == "" {
		return // reported already, or no outbox
	}
	if _, err := outbox.CheckDSN(dsn); err != nil {
		reject([]string{"SIDECAR_OUTBOX_DSN"}, err.Error())
	}
}

// checkDelays rejects what does not fit how retries of the topology wait.
func checkDelays(cfg *config.Config, reject func(variables []string, reasons ...string)) {
	p, err := declaredPlan(cfg)
	if err != nil {
		return // reported already
	}
	checkOrder(cfg, p, reject)
	if p.FromFile && !p.Quorum && p.Attempt > topology.MaxHeld {
		reject([]string{"SIDECAR_APP_TIMEOUT", "SIDECAR_PLAN_FILE"}, "with SIDECAR_RETRY_AFTER_MAX or "+
			"SIDECAR_REQUEUE_DELAY_MAX it must not be more than 25m: the plan's queue is not a quorum queue, and after 30 "+
			"minutes the broker takes an unsettled message away")
	}
}

// checkOrder rejects an order by key where retries wait in the queue itself, or longer than messages may be unsettled.
func checkOrder(cfg *config.Config, p *topology.Plan, reject func(variables []string, reasons ...string)) {
	var waits, fitting []string
	for _, w := range p.Waits {
		waits = append(waits, topology.TierLabel(w.Delay))
		fitting = append(fitting, topology.TierLabel(min(w.Delay, config.MaxOrderDelay)))
	}
	fitting = slices.Compact(fitting)
	who, set := p.Preset, "SIDECAR_RETRY_DELAY"
	if p.Tiered {
		set = "SIDECAR_RETRY_DELAYS"
	}
	set = config.OwnName(cfg.Subscription, set) + "=" + strings.Join(fitting, ",")
	if p.FromFile {
		who, set = "the plan", "shorter delays in SIDECAR_PLAN_FILE"
	}
	switch {
	case cfg.Retry.OrderBy == "":
	case p.DelaysItself():
		reject([]string{"SIDECAR_ORDER_BY", "SIDECAR_TOPOLOGY"}, "cannot be combined with a queue that delays messages "+
			"itself: after a lost connection they would be out of order. Every other "+
			config.OwnName(cfg.Subscription, "SIDECAR_TOPOLOGY")+" keeps the order")
	case !slices.Equal(waits, fitting):
		reject([]string{"SIDECAR_ORDER_BY"}, fmt.Sprintf("messages in order wait unsettled, for 10m at most, and %s waits "+
			"%s: set %s", who, strings.Join(waits, ", "), set))
	}
}

// parsePlan reads the plan of SIDECAR_PLAN_FILE.
func parsePlan(cfg *config.Config) (*topology.Plan, error) {
	p, err := topology.ParsePlan(cfg.Plan, cfg.Service.Name, longestAttempt(cfg))
	if err == nil && singleActive(cfg) {
		err = p.DemandSingleActive()
	}
	return p, err
}

// checkBeside rejects a rate that is too low for the window, and what does not fit the subscriptions before it.
func checkBeside(cfg *config.Config, before []*config.Config, reject func(variables []string, reasons ...string)) {
	plan, err := declaredPlan(cfg)
	if err != nil {
		return // reported already
	}
	window, rate := cfg.Window.Prefetch, float64(cfg.Window.RateLimit)
	if most := 15 * 60 * rate; rate > 0 && float64(window) > most { // then messages in order return
		reject([]string{"SIDECAR_RATE_LIMIT", "SIDECAR_PREFETCH"}, fmt.Sprintf("the prefetch is %d messages, which take "+
			"more than 15m at this rate: the broker takes messages away that are unsettled for too long. Set a higher rate, "+
			"or SIDECAR_CONCURRENCY and SIDECAR_PREFETCH to %d at most", window, max(1, int(most))))
	}
	for _, other := range before {
		p, err := declaredPlan(other)
		if err != nil {
			continue
		}
		for _, m := range plan.Beside(p, other.Subscription) {
			mine, theirs := m.Variables[0], config.OwnName(other.Subscription, m.Variables[1])
			reject([]string{mine}, fmt.Sprintf("%s: give %s or %s another value", m.Reason,
				config.OwnName(cfg.Subscription, mine), theirs))
		}
		if !slices.Equal(published(cfg, plan), published(other, p)) {
			reject([]string{"SIDECAR_EXCHANGE"}, fmt.Sprintf("publishing needs one main exchange, and that of subscription %s "+
				"is %s: set default=EXCHANGE in SIDECAR_PUBLISH_EXCHANGES", other.Subscription,
				mainExchange(other, p)))
		}
	}
}

// declaredPlan is the topology of the configured preset or file, as it is declared; of several subscriptions that of
// the first one.
func declaredPlan(cfg *config.Config) (p *topology.Plan, err error) {
	if len(cfg.Subscriptions) > 0 {
		cfg = cfg.Subscriptions[0]
	}
	if cfg.Plan != nil {
		p, err = parsePlan(cfg)
	} else {
		p, err = topology.Build(planOptions(cfg))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return p, nil
}

// newPlan returns the configured topology as it runs.
func newPlan(cfg *config.Config) (*topology.Plan, error) {
	p, err := declaredPlan(cfg)
	if err != nil {
		return nil, err
	}
	return running(cfg, p), nil
}

// running returns a declared plan as it runs, and changes it. Only in declare mode, which makes the bindings, a retry
// leaves by reject: bindings cannot be seen over AMQP.
func running(cfg *config.Config, p *topology.Plan) *topology.Plan {
	p.InPlace = cfg.Retry.OrderBy != ""
	switch modeOf(cfg) {
	case topology.ModeVerify:
		return p.WithoutReject()
	case topology.ModeNone:
		return p.Cautious()
	}
	return p
}

func modeOf(cfg *config.Config) topology.Mode { return topology.Mode(cfg.Topology.Mode) }

func planOptions(cfg *config.Config) topology.Options {
	t, r := &cfg.Topology, &cfg.Retry
	bindings := make([]topology.Binding, 0, len(t.Bindings))
	for _, b := range t.Bindings {
		bindings = append(bindings, topology.Binding{Exchange: b.Exchange, Key: b.Key})
	}
	return topology.Options{
		Preset: t.Preset, Service: cfg.Service.Name, Subscription: cfg.Subscription, Prefix: t.Prefix, Exchange: t.Exchange,
		ExchangeType: t.ExchangeType, Queue: t.Queue, RetryExchange: t.RetryExchange, RetryQueue: t.RetryQueue,
		DLX: t.DLX, DLQ: t.DLQ, Bindings: bindings, QueueType: t.QueueType,
		MaxRetries: r.MaxRetries, RetryDelay: r.Delay, RetryDelays: r.Delays, MessageTTL: t.MessageTTL,
		NoDeadLetter: t.DeadLetter == config.Disabled, QueueArguments: queueArguments(t.QueueArguments),
		Attempt: longestAttempt(cfg), SingleActive: singleActive(cfg),
	}
}

// longestAttempt is how long a delivery stays unsettled at most: a POST, and a wait before a requeue.
func longestAttempt(cfg *config.Config) time.Duration {
	return cfg.App.Timeout + max(cfg.Retry.RetryAfterMax, cfg.Retry.RequeueDelayMax)
}

// queueArguments gives each value the type that a broker compares it by: an integer, true or false, or a text.
func queueArguments(texts map[string]string) amqp.Table {
	args := make(amqp.Table, len(texts))
	for name, text := range texts {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			args[name] = n
		} else if b, err := strconv.ParseBool(text); err == nil {
			args[name] = b
		} else {
			args[name] = text
		}
	}
	return args
}

// PresetValues returns the values that the topology preset gives to variables that are not set, by variable; empty for
// an object that the topology does not have. The warnings are about the whole configuration, a sentence each.
func PresetValues(cfg *config.Config) (values map[string]string, warned []string, err error) {
	p, err := newPlan(cfg)
	if err != nil {
		return nil, nil, err
	}
	if p.FromFile {
		return nil, warnings(cfg, p, unasked(p)), nil
	}
	o := topology.Fill(planOptions(cfg))
	v := o.Values()
	v["SIDECAR_RETRY_DELAYS"] = cmp.Or(v["SIDECAR_RETRY_DELAYS"], "none")
	var bindings []string
	for _, b := range feeds(p) {
		bindings = append(bindings, b.Exchange+":"+b.Key)
	}
	v["SIDECAR_BINDINGS"] = strings.Join(bindings, ",")
	return v, warnings(cfg, p, unasked(p)), nil
}

// feeds are the bindings by which messages come to the service's queue.
func feeds(p *topology.Plan) []topology.Binding {
	return slices.DeleteFunc(slices.Clone(p.Bindings), func(b topology.Binding) bool {
		return b.Queue != p.Queue
	})
}

// unusedRoutes warns of routes for routing keys that no binding known here brings.
func unusedRoutes(cfg *config.Config, plan *topology.Plan) []string {
	var bindings []topology.Binding
	var keys, unused []string
	for _, b := range feeds(plan) {
		if back := plan.WayBack(); back == nil || b.Exchange != back.Exchange || b.Key != back.Key {
			bindings, keys = append(bindings, b), append(keys, b.Exchange+":"+b.Key)
		}
	}
	for _, item := range cfg.App.Routes {
		pattern, ok := dispatch.KeyPattern(item)
		used := func(b topology.Binding) bool { return plan.MayBring(&b, pattern) }
		toQueue := pattern.Match(plan.Queue) // published straight to it
		if ok && !toQueue && !slices.ContainsFunc(bindings, used) {
			unused = append(unused, strconv.Quote(item))
		}
	}
	if len(bindings) == 0 || len(unused) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("SIDECAR_ROUTES: no known binding of the queue %s brings a routing key for %s; it is "+
		"bound by %s", plan.Queue, firstOf(unused), firstOf(keys))}
}

// firstOf joins the first three texts, and says how many more there are.
func firstOf(texts []string) string {
	joined := strings.Join(texts[:min(len(texts), 3)], ", ")
	if more := len(texts) - 3; more > 0 {
		joined += fmt.Sprintf(" and %d more", more)
	}
	return joined
}

func newPolicy(cfg *config.Config) retry.Policy {
	return retry.Policy{
		ParkOn:       cfg.Retry.ParkOnStatus,
		CountRefused: cfg.Retry.AppDown == config.AppDownRetry,
		RequeueMin:   cfg.Retry.RequeueDelayMax / 5, RequeueMax: cfg.Retry.RequeueDelayMax,
		AckUnrouted: cfg.App.RoutesElse == config.RouteAck,
		PanicHold:   retry.PanicHold,
	}
}
