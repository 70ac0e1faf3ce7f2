package topology

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxName is what fits an AMQP short string. A longer one does not fail alone: the client library gives up the whole
// connection.
const maxName = 255

// defaultPrefix is the prefix of a service without a hyphen in its name.
const defaultPrefix = "default"

var serviceName = regexp.MustCompile(`^[A-Za-z0-9._][A-Za-z0-9._-]*$`)

// prefixOf returns the part of a service name before its first hyphen.
func prefixOf(service string) string {
	if prefix, _, found := strings.Cut(service, "-"); found {
		return prefix
	}
	return defaultPrefix
}

// restOf returns the part of a service name behind its first hyphen, all of it without one.
func restOf(service string) string {
	if _, rest, found := strings.Cut(service, "-"); found {
		return rest
	}
	return service
}

// TierLabel writes a delay the short way: 30s, 5m, 1h30m, 500ms.
func TierLabel(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// predeclared are the exchanges every virtual host has. Other names that begin with "amq." are refused by the broker.
var predeclared = map[string]string{
	"amq.direct": "direct", "amq.fanout": "fanout", "amq.topic": "topic",
	"amq.headers": "headers", "amq.match": "headers",
}

// nameFault says what a broker or the client library would refuse, or silently change, in a name or a routing key; ""
// for nothing.
func nameFault(name string) string {
	switch {
	case len(name) > maxName:
		return fmt.Sprintf("has %d bytes and may have %d", len(name), maxName)
	case !utf8.ValidString(name):
		return "is not UTF-8"
	case strings.ContainsFunc(name, unicode.IsControl): // the broker strips line ends from the names of queues
		return "holds a control character"
	}
	return ""
}

// reserved reports whether the broker keeps a name for itself. Those of predeclared exist and can be used.
func reserved(name string) bool { return strings.HasPrefix(name, "amq.") }

const reservedFault = "starts with amq. and is reserved by the broker"

// checkName refuses what is not fit to be the name of an object.
func checkName(what, name string) error {
	fault := nameFault(name)
	switch {
	case name == "":
		return fmt.Errorf("%s has no name", what)
	case fault == "" && reserved(name) && predeclared[name] == "":
		fault = reservedFault
	}
	if fault != "" {
		return fmt.Errorf("%s %s %s", what, brief(name), fault)
	}
	return nil
}

// brief quotes a name for a sentence, the beginning of a very long one.
func brief(name string) string {
	const longest = 60
	if len(name) > longest {
		return fmt.Sprintf("%q…", name[:longest])
	}
	return strconv.Quote(name)
}
