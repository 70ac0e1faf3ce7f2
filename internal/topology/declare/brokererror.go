package declare

import (
	"regexp"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The broker's answers are texts of at most 255 bytes, cut without mercy: with long names the end is missing. So
// every part is optional and what is known from the plan is never read from here.
var (
	inequivalent = regexp.MustCompile(`inequivalent arg '([^']+)'`)
	current      = regexp.MustCompile(` but current is (?:the value )?'?(.*?)'?(?: of type '\w+')?$`)
	refused      = regexp.MustCompile(`(?:(configure|write|read) )?access to (?:queue|exchange|topic) '([^']*)'`)
	inVhost      = regexp.MustCompile(`in vhost '([^']*)'`)
	forUser      = regexp.MustCompile(`refused for user '([^']*)'`)
)

// unknown is printed for a value that the broker did not name.
const unknown = "unknown"

// drifted reads a 406: the property that differs and the value it has ("… but current is 'x'", "… is none", "… is the
// value 'x' of type 't'"). ok is false for a 406 about something else.
func drifted(e *amqp.Error) (property, found string, ok bool) {
	if e.Code != amqp.PreconditionFailed {
		return "", "", false
	}
	m := inequivalent.FindStringSubmatch(e.Reason)
	if m == nil {
		return "", "", false
	}
	if value := current.FindStringSubmatch(e.Reason); value != nil {
		return m[1], value[1], true
	}
	return m[1], unknown, true
}

// denial is what a 403 says.
type denial struct {
	permission string // configure, write or read; empty where the broker does not say (3.10)
	resource   string
	vhost      string
	user       string
}

func denied(e *amqp.Error) denial {
	var d denial
	if m := refused.FindStringSubmatch(e.Reason); m != nil {
		d.permission, d.resource = m[1], m[2]
	}
	d.vhost, d.user = first(inVhost, e.Reason), first(forUser, e.Reason)
	return d
}

func first(re *regexp.Regexp, s string) string {
	if m := re.FindStringSubmatch(s); m != nil {
		return m[1]
	}
	return ""
}
