package topology

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// role is what an object is for, as a set.
type role uint8

const (
	mainQueue role = 1 << iota
	retryQueue
	deadLetterQueue
	mainExchange
	retryExchange // retries are published to it
	parkExchange

	anyQueue    = mainQueue | retryQueue | deadLetterQueue
	anyExchange = mainExchange | retryExchange | parkExchange
)

// setting is where a user sets a part of a topology.
type setting struct {
	variable string // of a preset
	path     string // in a plan file; empty: the variable is set beside the file, too
}

// settings are the parts of a topology by the words for them in braces. These are the placeholders of presets, and of
// texts for users. No other place has the name of a variable.
var settings = map[string]setting{
	"{topology}":        {"SIDECAR_TOPOLOGY", "$"},
	"{prefix}":          {"SIDECAR_PREFIX", "$.queues[].name"},
	"{exchange}":        {"SIDECAR_EXCHANGE", "$.exchanges[].name"},
	"{exchange-type}":   {"SIDECAR_EXCHANGE_TYPE", "$.exchanges[].type"},
	"{queue}":           {"SIDECAR_QUEUE", "$.queue"},
	"{queue-type}":      {"SIDECAR_QUEUE_TYPE", "$.queues[].arguments.x-queue-type"},
	"{queue-arguments}": {"SIDECAR_QUEUE_ARGUMENTS", "$.queues[].arguments"},
	"{bindings}":        {"SIDECAR_BINDINGS", "$.bindings"},
	"{retry-exchange}":  {"SIDECAR_RETRY_EXCHANGE", "$.waits[].exchange"},
	"{retry-queue}":     {"SIDECAR_RETRY_QUEUE", "$.waits[].queue"},
	"{retry-delay}":     {"SIDECAR_RETRY_DELAY", "$.waits[].delay"},
	"{retry-delays}":    {"SIDECAR_RETRY_DELAYS", "$.waits[].delay"},
	"{max-retries}":     {"SIDECAR_MAX_RETRIES", "$.max_retries"},
	"{dlx}":             {"SIDECAR_DLX", "$.park.exchange"},
	"{dlq}":             {"SIDECAR_DLQ", "$.park.queue"},
	"{dead-letter}":     {"SIDECAR_DEAD_LETTER", "$.park"},
	"{message-ttl}":     {"SIDECAR_MESSAGE_TTL", "$.queues[].arguments.x-message-ttl"},

	"{service}":      {"SIDECAR_SERVICE", ""},
	"{first}":        {"SIDECAR_SERVICE", ""},
	"{rest}":         {"SIDECAR_SERVICE", ""},
	"{subscription}": {"SIDECAR_SUBSCRIPTIONS", ""},
	"{tier}":         {"SIDECAR_RETRY_DELAYS", ""},
	"{seconds}":      {"SIDECAR_RETRY_DELAYS", ""},

	"{plan-file}":         {"SIDECAR_PLAN_FILE", ""},
	"{mode}":              {"SIDECAR_TOPOLOGY_MODE", ""},
	"{app-timeout}":       {"SIDECAR_APP_TIMEOUT", ""},
	"{retry-after-max}":   {"SIDECAR_RETRY_AFTER_MAX", ""},
	"{requeue-delay-max}": {"SIDECAR_REQUEUE_DELAY_MAX", ""},
	"{order-by}":          {"SIDECAR_ORDER_BY", ""},
	"{order-scope}":       {"SIDECAR_ORDER_SCOPE", ""},
}

var placeholder = regexp.MustCompile(`\{[a-z-]+\}`)

// Say replaces the parts of a topology in a text by what sets them.
func (p *Plan) Say(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(word string) string {
		s, known := settings[word]
		switch {
		case !known:
			return word
		case p.FromFile && s.path != "":
			return s.path + " of the plan file"
		}
		return s.variable
	})
}

// variables are those that set some parts of a preset.
func variables(parts ...string) []string {
	var all []string
	for _, part := range parts {
		all = append(all, settings[part].variable)
	}
	return all
}

// queueRole is the role of a queue, and the word for it.
func queueRole(q *Queue) (of role, word string) {
	switch q.Kind {
	case KindMain:
		return mainQueue, "{queue}"
	case KindRetry:
		return retryQueue, "{retry-queue}"
	}
	return deadLetterQueue, "{dlq}"
}

// exchangeRole is the role of an exchange, and the word for it.
func (p *Plan) exchangeRole(name string) (of role, word string) {
	switch {
	case name == p.Park.Exchange:
		return parkExchange, "{dlx}"
	case slices.ContainsFunc(p.Waits, func(w WaitPath) bool { return w.Exchange == name }):
		return retryExchange, "{retry-exchange}"
	}
	return mainExchange, "{exchange}"
}

var pathSteps = regexp.MustCompile(`^\$\.(\w+)(?:\[(\d+)\])?(.*)$`)

// setBy returns the word for the part of a preset's plan that a JSON path leads to.
func (p *Plan) setBy(path string) string {
	steps := pathSteps.FindStringSubmatch(path)
	list, rest := steps[1], steps[3]
	i, _ := strconv.Atoi(steps[2])
	switch list {
	case "queues":
		return p.queueSetBy(&p.Queues[i], rest)
	case "exchanges":
		if rest == ".type" {
			return "{exchange-type}"
		}
		if p.Exchanges[i].Type == "" { // of another service
			return "{bindings}"
		}
		_, word := p.exchangeRole(p.Exchanges[i].Name)
		return word
	case "bindings":
		return "{bindings}"
	case "waits":
		if rest == ".delay" || steps[2] == "" {
			return "{retry-delays}"
		}
		return "{retry-exchange}"
	case "max_retries":
		return "{max-retries}"
	case "park":
		if rest == ".key" {
			return "{dlq}"
		}
		return "{dlx}"
	}
	return "{queue}"
}

// queueSetBy returns the word for the part of a preset's queue that the rest of a JSON path leads to.
func (p *Plan) queueSetBy(q *Queue, rest string) string {
	_, word := queueRole(q)
	arg, isArg := strings.CutPrefix(rest, ".arguments") // .x-max-length, or ["x max"]
	switch arg = strings.TrimPrefix(arg, "."); {
	case arg == ArgType:
		return "{queue-type}"
	case arg == ArgDLKey:
		return "{service}"
	case arg == ArgTTL && word == "{queue}" && p.arguments[arg] == nil:
		return "{message-ttl}"
	case isArg && word == "{queue}":
		return "{queue-arguments}"
	}
	return word
}
