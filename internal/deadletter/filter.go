package deadletter

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
)

// Filter chooses messages. A message has to meet every condition that is set; of values given to one condition, any.
// The zero Filter chooses all.
type Filter struct {
	IDs      []string // message ids or Refs
	Statuses []string // "503" or a class: "5xx"; "none": no answer at all
	Reasons  []string
	Group    string // id of a Group
	Error    string // part of the error, detail or problem texts, case ignored

	RoutingKeys []string // patterns with * and ?
	Headers     []HeaderMatch

	met map[string]bool // of IDs, those that a message has had; shared by copies of the filter

	Before, After time.Time // of ParkedAt; zero = any. A message without that time matches neither
}

// HeaderMatch is a header and a pattern for its value as text.
type HeaderMatch struct{ Name, Pattern string }

// Conditions are the names that Set knows, with what they mean to people.
var Conditions = [][2]string{
	{"status", "status of the last answer: 503, 5xx, or none for those without one"},
	{"reason", "why it was parked: max_retries, park_status, disposition, too_large, crash, ..."},
	{"older", "parked longer ago than this: 90s, 15m, 2h, 7d"},
	{"newer", "parked less long ago than this"},
	{"routing-key", "routing key it was first published with; * stands for anything"},
	{"header", "a header and its value, NAME=VALUE; * stands for anything, NAME alone for any value"},
	{"error", "part of the error or problem text"},
	{"group", "id of a group, as groups prints it"},
	{"id", "message id, or the reference that list prints"},
}

// Set adds a condition by its name as in Conditions. An error is ErrInvalid and names condition and value.
func (f *Filter) Set(name, value string) error {
	problem := "must not be empty"
	if value != "" {
		problem = f.set(name, value)
	}
	if problem != "" {
		return fmt.Errorf("%w: %s %.100q: %s", ErrInvalid, name, value, problem)
	}
	return nil
}

func (f *Filter) set(name, value string) (problem string) {
	switch name {
	case "status":
		if !isStatus(value) {
			return "want a status such as 503, a class such as 5xx, or none"
		}
		f.Statuses = append(f.Statuses, value)
	case "reason":
		if !isReason(value) {
			return "is not a reason that a message is parked for"
		}
		f.Reasons = append(f.Reasons, value)
	case "older":
		return setAge(&f.Before, value)
	case "newer":
		return setAge(&f.After, value)
	case "routing-key":
		f.RoutingKeys = append(f.RoutingKeys, value)
	case "header":
		key, pattern, valued := strings.Cut(value, "=")
		if key == "" {
			return "want NAME=VALUE or NAME"
		}
		if !valued {
			pattern = "*"
		}
		f.Headers = append(f.Headers, HeaderMatch{key, pattern})
	case "error":
		return setOnce(&f.Error, value)
	case "group":
		return setOnce(&f.Group, value)
	case "id":
		f.IDs = append(f.IDs, value)
		if f.met == nil {
			f.met = map[string]bool{}
		}
	default:
		return "is not a condition"
	}
	return ""
}

const givenTwice = "is given twice"

func setAge(at *time.Time, value string) (problem string) {
	d, err := parseAge(value)
	switch {
	case err != nil:
		return "want a duration such as 90s, 15m, 2h or 7d"
	case !at.IsZero():
		return givenTwice
	}
	*at = time.Now().Add(-d)
	return ""
}

// setOnce refuses a second value instead of replacing the first: people discard messages by this condition.
func setOnce(text *string, value string) (problem string) {
	if *text != "" {
		return givenTwice
	}
	*text = value
	return ""
}

// Empty reports whether the filter chooses every message.
func (f *Filter) Empty() bool {
	return len(f.IDs)+len(f.Statuses)+len(f.Reasons)+len(f.RoutingKeys)+len(f.Headers) == 0 &&
		f.Group == "" && f.Error == "" && f.Before.IsZero() && f.After.IsZero()
}

// Match reports whether the filter chooses m.
func (f *Filter) Match(m *Message) bool {
	anyOf := func(values []string, fits func(string) bool) bool {
		return len(values) == 0 || slices.ContainsFunc(values, fits)
	}
	return anyOf(f.Statuses, m.hasStatus) &&
		anyOf(f.Reasons, func(r string) bool { return r == m.Reason }) &&
		anyOf(f.RoutingKeys, func(p string) bool { return glob(p, m.RoutingKey) }) &&
		(f.Before.IsZero() || !m.ParkedAt.IsZero() && m.ParkedAt.Before(f.Before)) &&
		(f.After.IsZero() || !m.ParkedAt.IsZero() && m.ParkedAt.After(f.After)) &&
		(f.Error == "" || m.mentions(f.Error)) &&
		!slices.ContainsFunc(f.Headers, func(h HeaderMatch) bool { return !m.hasHeader(h) }) &&
		(f.Group == "" || m.Group().ID == f.Group) &&
		f.matchID(m) // last: a Ref is a digest of everything
}

// matchID compares with every id, so that Unmet knows which ids no message has.
func (f *Filter) matchID(m *Message) bool {
	found := len(f.IDs) == 0
	for _, id := range f.IDs {
		if m.is(id) {
			found = true
			if f.met != nil {
				f.met[id] = true
			}
		}
	}
	return found
}

// Unmet returns the ids that no message has had among those matched since the filter was made.
func (f *Filter) Unmet() []string {
	return slices.DeleteFunc(slices.Clone(f.IDs), func(id string) bool { return f.met[id] })
}

func (m *Message) hasStatus(s string) bool {
	if s == "none" {
		return m.Status == 0
	}
	return glob(strings.ReplaceAll(s, "x", "?"), strconv.Itoa(m.Status))
}

func (m *Message) mentions(part string) bool {
	part = strings.ToLower(part)
	return slices.ContainsFunc([]string{m.Error, m.Detail, m.Problem.Type, m.Problem.Title, m.Problem.Detail},
		func(s string) bool { return strings.Contains(strings.ToLower(s), part) })
}

func (m *Message) hasHeader(h HeaderMatch) bool {
	v, ok := m.Properties.Headers[h.Name]
	return ok && glob(h.Pattern, amqpvalue.Text(v))
}

func isStatus(s string) bool {
	if s == "none" || len(s) == 3 && s[0] >= '1' && s[0] <= '9' && s[1:] == "xx" {
		return true
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && len(s) == 3 && n <= 999
}

// isReason: ours are a closed set, the broker's own are not.
func isReason(s string) bool {
	if strings.HasPrefix(s, "broker:") {
		return true
	}
	for r := range message.Reasons {
		if message.Reason(r).String() == s { //nolint:gosec // the reasons are the integers below Reasons
			return true
		}
	}
	return false
}

// parseAge is time.ParseDuration with days.
func parseAge(s string) (time.Duration, error) {
	unit := time.Duration(1)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		s, unit = days+"h", 24
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, err
	}
	if d < 0 || d > time.Duration(1<<62)/unit {
		return 0, fmt.Errorf("out of range")
	}
	return d * unit, nil
}

// glob matches * and ? against all of s, slashes included. Every pattern is valid: other characters match themselves.
func glob(pattern, s string) bool {
	// path.Match stops at slashes, of which a routing key may have some, and knows more special bytes.
	const slash = "\x00"
	quoted := strings.NewReplacer(`\`, `\\`, `[`, `\[`, "/", slash).Replace(pattern)
	ok, err := path.Match(quoted, strings.ReplaceAll(s, "/", slash))
	return ok && err == nil
}
