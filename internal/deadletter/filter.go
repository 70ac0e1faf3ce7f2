package deadletter

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
)

// Filter chooses messages. A message has to meet every condition that is set. The zero Filter chooses all.
type Filter struct {
	given map[string]texts  // the values of each condition that is set
	tests map[string][]test // of each, one for each value
	met   map[string]bool   // ids that a message has had; shared by copies of the filter
}

// test reports whether a message meets a condition with one value.
type test func(*Message) bool

// Condition is one that Set accepts.
type Condition struct {
	Name   string
	Help   string // what it means to people
	values values
	parse  func(value string) (t test, problem string)
}

// values says how several values of a condition are taken.
type values int

const (
	anyOf values = iota
	allOf
	once // a second one is refused instead of replacing the first: people discard messages by this condition
)

// Conditions are all conditions, those that cost most last: text reads the whole body, and a Ref is a digest of
// everything.
var Conditions = []Condition{
	{"status", "status of the last answer: 503, 5xx, or none for those without one", anyOf, testStatus},
	{"reason", "why it was parked: max_retries, park_status, disposition, too_large, ...", anyOf, testReason},
	{"older", "parked longer ago than this: 90s, 15m, 2h, 7d", once, aged(time.Time.Before)},
	{"newer", "parked less long ago than this", once, aged(time.Time.After)},
	{"routing-key", "routing key it was first published with; * stands for anything", anyOf,
		globs(func(m *Message) string { return m.RoutingKey })},
	{"correlation-id", "correlation id; * stands for anything", anyOf,
		globs(func(m *Message) string { return m.CorrelationID })},
	{"header", "a header and its value, NAME=VALUE; * stands for anything, NAME alone for any value", allOf, testHeader},
	{"error", "part of the error, problem or answer text", once, testError},
	{"group", "id of a group, as groups prints it", once, testGroup},
	{"text", "part of its ids, error, problem, answer or body, in upper or lower case", once, testText},
	{"id", "message id, or the reference that list prints", anyOf, testID},
}

// Set adds a value of a condition. An error is ErrInvalid and names both.
func (f *Filter) Set(name, value string) error {
	var t test
	var problem string
	i := slices.IndexFunc(Conditions, func(c Condition) bool { return c.Name == name })
	switch {
	case value == "":
		problem = "must not be empty"
	case i < 0:
		problem = "is not a condition; there are"
		for _, c := range Conditions {
			problem += " " + c.Name
		}
	default:
		t, problem = Conditions[i].parse(value)
		if problem == "" && Conditions[i].values == once && f.tests[name] != nil {
			problem = "is given twice"
		}
	}
	if problem != "" {
		return fmt.Errorf("%w: %s %.100q: %s", ErrInvalid, name, value, problem)
	}
	if f.tests == nil {
		f.given, f.tests, f.met = map[string]texts{}, map[string][]test{}, map[string]bool{}
	}
	f.given[name], f.tests[name] = append(f.given[name], value), append(f.tests[name], t)
	return nil
}

// Empty reports whether the filter chooses every message.
func (f *Filter) Empty() bool { return len(f.tests) == 0 }

// Match reports whether the filter chooses m.
func (f *Filter) Match(m *Message) bool {
	for _, c := range Conditions {
		tests, met := f.tests[c.Name], 0
		for i, t := range tests {
			if !t(m) {
				continue
			}
			met++
			if c.Name == "id" { // every one is compared, for Unmet
				f.met[f.given["id"][i]] = true
			}
		}
		if met < len(tests) && (met == 0 || c.values == allOf) {
			return false
		}
	}
	return true
}

// Unmet returns the ids that no message has had among those matched since the filter was made.
func (f *Filter) Unmet() []string {
	return slices.DeleteFunc(slices.Clone(f.given["id"]), func(id string) bool { return f.met[id] })
}

func testStatus(value string) (test, string) {
	class, _ := path.Match("[1-9]xx", value)
	number, _ := path.Match("[0-9][0-9][0-9]", value)
	switch {
	case value == "none":
		return func(m *Message) bool { return m.Status == 0 }, ""
	case class || number:
		pattern := strings.ReplaceAll(value, "x", "?")
		statuses := glob(pattern)
		return func(m *Message) bool { return statuses.Match(strconv.Itoa(m.Status)) }, ""
	}
	return nil, "want a status such as 503, a class such as 5xx, or none"
}

// testReason: our reasons are a closed set, the broker's own are not.
func testReason(value string) (test, string) {
	if value == "none" {
		return func(m *Message) bool { return m.Reason == "" }, ""
	}
	known := strings.HasPrefix(value, "broker:")
	for r := range message.Reasons {
		known = known || message.Reason(r).String() == value //nolint:gosec // the reasons are the integers below Reasons
	}
	if !known {
		return nil, "is not a reason that a message is parked for"
	}
	return func(m *Message) bool { return m.Reason == value }, ""
}

// aged parses an age that a message is compared with. A message without a time meets no such condition.
func aged(compare func(parked, then time.Time) bool) func(string) (test, string) {
	return func(value string) (test, string) {
		age, err := parseAge(value)
		if err != nil {
			return nil, "want a duration such as 90s, 15m, 2h or 7d"
		}
		then := time.Now().Add(-age)
		return func(m *Message) bool { return !m.ParkedAt.IsZero() && compare(m.ParkedAt, then) }, ""
	}
}

func glob(pattern string) message.Globs { return message.NewGlobs([]string{pattern}, false) }

// globs parses a pattern for a text of a message.
func globs(text func(*Message) string) func(string) (test, string) {
	return func(value string) (test, string) {
		pattern := glob(value)
		return func(m *Message) bool { return pattern.Match(text(m)) }, ""
	}
}

func testHeader(value string) (test, string) {
	name, pattern, valued := strings.Cut(value, "=")
	if name == "" {
		return nil, "want NAME=VALUE or NAME"
	}
	values := glob(pattern)
	return func(m *Message) bool {
		v, ok := m.Properties.Headers[name]
		return ok && (!valued || values.Match(amqpvalue.Text(v)))
	}, ""
}

// testError ignores case.
func testError(value string) (test, string) {
	part := strings.ToLower(value)
	return func(m *Message) bool {
		return contains(part, m.Error, m.Detail, m.Problem.Type, m.Problem.Title, m.Problem.Detail, m.Answer)
	}, ""
}

// testText ignores case. A body that was not read has no text.
func testText(value string) (test, string) {
	part := strings.ToLower(value)
	inError, _ := testError(value)
	return func(m *Message) bool {
		return contains(part, m.MessageID, m.CorrelationID) || inError(m) || bodyContains([]byte(part), m.Properties.Body)
	}, ""
}

// contains reports whether one of the texts has part, which is in lower case, in it.
func contains(part string, texts ...string) bool {
	return slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(strings.ToLower(s), part) })
}

// searchPiece is how much of a body is changed to lower case at a time, in bytes.
const searchPiece = 64 << 10

// bodyContains is contains for a body, which may be too large to be copied. The time does not depend on part, as it
// would with an expression.
func bodyContains(part, body []byte) bool {
	var lower []byte // of the current piece, after the end of the one before
	for len(body) > 0 {
		n := min(len(body), searchPiece)
		for n < len(body) && n > searchPiece-utf8.UTFMax && !utf8.RuneStart(body[n]) {
			n--
		}
		lower = append(lower[max(0, len(lower)-len(part)+1):], bytes.ToLower(body[:n])...)
		if bytes.Contains(lower, part) {
			return true
		}
		body = body[n:]
	}
	return false
}

func testGroup(value string) (test, string) {
	return func(m *Message) bool { return m.Group().ID == value }, ""
}

func testID(value string) (test, string) {
	return func(m *Message) bool { return m.is(value) }, ""
}

// parseAge is time.ParseDuration with days.
func parseAge(s string) (time.Duration, error) {
	unit := time.Duration(1)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		s, unit = days+"h", 24
	}
	d, err := time.ParseDuration(s)
	if err == nil && (d < 0 || d > time.Duration(1<<62)/unit) {
		err = errors.New("out of range")
	}
	return d * unit, err
}
