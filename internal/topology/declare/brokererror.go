package declare

import (
	"regexp"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// The broker's answers are texts of at most 255 bytes, truncated: with long names the end is missing. So
// every part is optional and what is known from the plan is never read from here.
var (
	inequivalent = regexp.MustCompile(`inequivalent arg '([^']+)'`)
	current      = regexp.MustCompile(` but current is (?:(none)|the value '(.*)' of type '(\w+)'|'(.*)')$`)
	refused      = regexp.MustCompile(`(?:(configure|write|read) )?access to (?:queue|exchange|topic) '([^']*)'` +
		`(?:.*? in vhost '([^']*)')?(?:.*? refused for user '([^']*)')?`)
)

// NodeDown reports whether the broker's words for a 404 say that the queue exists on a node that is down. RabbitMQ 3.10
// says so at once, 4.0 to 4.3 say that they ran out of time, after one or two minutes.
func NodeDown(reason string) bool {
	return strings.HasPrefix(reason, "NOT_FOUND - home node ") ||
		strings.HasPrefix(reason, "NOT_FOUND - failed to perform operation on queue ")
}

// absent reports whether a refusal says that the object does not exist.
func absent(refusal *amqp.Error) bool {
	return refusal.Code == amqp.NotFound && !NodeDown(refusal.Reason)
}

// atLimit reports whether the broker refuses to make an object that does not exist, because a virtual host or the
// cluster has as many as it may have. RabbitMQ 3.10 says so before it compares the arguments, 4.0 to 4.3 only when
// nothing else is wrong with a declaration.
func atLimit(refusal *amqp.Error) bool {
	return strings.HasPrefix(refusal.Reason, "PRECONDITION_FAILED - cannot declare ")
}

// drift is what a 406 says about a property that differs.
type drift struct {
	property string
	value    any  // that the broker has; nil: none
	cut      bool // the answer ends before the value
}

// drifted reads a 406; ok is false for one about something else.
func drifted(e *amqp.Error) (d drift, ok bool) {
	if e.Code != amqp.PreconditionFailed {
		return d, false
	}
	m := inequivalent.FindStringSubmatch(e.Reason)
	if m == nil {
		return d, false
	}
	d.property = m[1]
	value := current.FindStringSubmatch(e.Reason)
	switch {
	case value == nil:
		d.cut = true
	case value[1] != "":
		// RabbitMQ 3.10 calls the type of a classic queue so, too
		if d.property == topology.ArgType {
			d.value = topology.TypeClassic
		}
	case value[3] != "":
		d.value = typed(value[2], value[3])
	default:
		d.value = typed(value[4], "")
	}
	return d, true
}

// typed returns a value that the broker wrote as text, by the name of its type; without one, true and false are
// booleans and all else is text.
func typed(text, kind string) any {
	switch kind {
	case "longstr":
		return text
	case "", "bool":
		if b, err := strconv.ParseBool(text); err == nil {
			return b
		}
		return text
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	return text
}

type denial struct {
	permission string // configure, write or read; empty where the broker does not say (3.10)
	resource   string
	vhost      string
	user       string
}

func denied(e *amqp.Error) denial {
	m := refused.FindStringSubmatch(e.Reason)
	if m == nil {
		return denial{}
	}
	return denial{m[1], m[2], m[3], m[4]}
}
