package dispatch

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"sidecar/internal/message"
)

// route gives the messages that match a pattern a path of their own.
type route struct {
	of      property
	header  string // "header:" and its name
	pattern message.Topic
	url     string // with placeholders
}

// property is what a pattern is compared with. byKey and byType are also indexes of placeholders.
type property int

const (
	byKey property = iota
	byType
	byExchange
	byHeader
	unknown
)

// prefixes of patterns; one of a routing key needs none, unless it has a colon.
var prefixes = map[string]property{"key": byKey, "type": byType, "exchange": byExchange, "header": byHeader}

// placeholders of a path, and what they are replaced with.
var placeholders = []string{"{routing_key}", "{type}", "{queue}"}

// newRoute reads pattern=path. The path is that of a URL with that origin. problem says what is wrong with the pattern.
func newRoute(item, origin string) (r route, problem string) {
	pattern, path, assigned := strings.Cut(item, "=")
	pattern, r.url = strings.TrimSpace(pattern), origin+strings.TrimSpace(path)
	if prefix, rest, found := strings.Cut(pattern, ":"); found {
		of, known := prefixes[prefix]
		switch before, after, slash := strings.Cut(item, ":/"); {
		case known:
		case !assigned && slash:
			r.url = "/" + after
			return r, fmt.Sprintf("write %s=/%s", before, after)
		default:
			return r, fmt.Sprintf("unknown prefix %q: use type:, exchange: or header:NAME:, or key: if the routing key itself "+
				"has a colon", prefix)
		}
		if r.of, pattern = of, strings.TrimSpace(rest); of == byHeader {
			var name string
			name, pattern, found = strings.Cut(pattern, ":")
			pattern = strings.TrimSpace(pattern)
			if r.header = "header:" + name; !found || name == "" {
				return r, "a header has a name and a pattern, as in header:task:shop.orders.#"
			}
		}
	}
	r.pattern = message.NewTopic(pattern)
	if len(r.pattern) == 0 {
		problem = "the pattern is empty: '#' matches everything"
	}
	return r, problem
}

// KeyPattern returns the pattern of a route by routing key; ok is false for a route by anything else.
func KeyPattern(item string) (pattern message.Topic, ok bool) {
	r, problem := newRoute(item, "")
	return r.pattern, problem == "" && r.of == byKey
}

// Route returns the number of the route by which m is POSTed, the first one that matches, from 1 on, and the URL; 0 if
// no route matches.
func (t *Target) Route(m *message.Message) (number int, url string) {
	values := []string{m.RoutingKey, "", m.Queue}
	if t.typed {
		values[byType] = t.typeOf(asSent(m))
	}
	for i := range t.routes {
		r := &t.routes[i]
		if r.matches(m, values) {
			if url := expand(r.url, values); url != "" {
				return i + 1, url
			}
		}
	}
	return 0, ""
}

// matches reports whether the pattern matches. A routing key may be empty, and the default exchange has the name
// amq.default; without a type, or without the header, a message matches no pattern of it.
func (r *route) matches(m *message.Message, values []string) bool {
	switch r.of {
	case byExchange:
		return r.pattern.Match(cmp.Or(m.Exchange, message.DefaultExchange))
	case byHeader:
		v := m.Key(r.header)
		return v != "" && r.pattern.Match(v)
	case byType:
		return values[byType] != "" && r.pattern.Match(values[byType])
	default:
		return r.pattern.Match(m.RoutingKey)
	}
}

// expand returns target with its placeholders replaced, "" if the values cannot be parts of path segments.
func expand(target string, values []string) string {
	at := strings.IndexByte(target, '{')
	if at < 0 {
		return target
	}
	segment := strings.LastIndexByte(target[:at], '/') // the route itself was checked up to there
	out, separated := make([]byte, 0, 512), false
	for ; at >= 0; at = strings.IndexByte(target, '{') {
		end := strings.IndexByte(target, '}') + 1
		v := values[slices.Index(placeholders, target[at:end])]
		if v == "" || len(v) > maxSegment || climbs(v) {
			return ""
		}
		separated = separated || strings.ContainsAny(v, `/\;`)
		out, target = appendEscaped(append(out, target[:at]...), v, escapeSegment), target[end:]
	}
	out = append(out, target...)
	if separated { // values that do not climb alone may do so with dots of the route between them
		if plain, _ := url.PathUnescape(string(out[segment:])); climbs(plain) {
			return ""
		}
	}
	return string(out)
}

// climbs reports whether a part of v is '.' or '..': servers resolve it even where the slashes around it are
// percent-encoded. Some take '\' for '/', and ignore what follows ';' in a part.
func climbs(v string) bool {
	for part := range strings.FieldsFuncSeq(v, func(r rune) bool { return r == '/' || r == '\\' }) {
		if part, _, _ = strings.Cut(part, ";"); part == "." || part == ".." {
			return true
		}
	}
	return false
}

const (
	maxRoutes  = 256
	maxSegment = 255 // bytes of a path, and of the value of a placeholder: a request target has less than 64 KiB
)

var (
	placeholder = regexp.MustCompile(`{[^}]*}`)
	partOfWord  = regexp.MustCompile(`[^.][*#]|[*#][^.]`)
	routePath   = regexp.MustCompile(`^/(([\w.~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2}|{(routing_key|type|queue)})+/?)*$`)
)

// CheckRoutes returns what is wrong with the routes, a sentence for each mistake.
func CheckRoutes(routes []string) (wrong []string) {
	var earlier []route
	for i, item := range routes[:min(len(routes), maxRoutes+1)] {
		refuse := func(is bool, why string) {
			if is {
				wrong = append(wrong, fmt.Sprintf("route %d, %.99q: %s", i+1, item, why))
			}
		}
		r, problem := newRoute(item, "")
		if problem != "" {
			r.of = unknown // keeps its number, covers nothing, and is not covered
		}
		by := slices.IndexFunc(earlier, r.isCovered) + 1
		earlier = append(earlier, r)
		plain, _ := url.PathUnescape(placeholder.ReplaceAllString(r.url, ""))
		refuse(i == maxRoutes, "there must not be more than 256")
		refuse(problem != "", problem)
		refuse(partOfWord.MatchString(strings.Join(r.pattern, ".")),
			"'*' and '#' must be whole words between dots, as in order.*.#")
		refuse(by > 0, fmt.Sprintf("never used, because route %d matches all of it: put it before that one or remove it", by))
		refuse(len(r.url) > maxSegment || !routePath.MatchString(r.url), "the path must begin with one '/', have at most "+
			"255 bytes, no '?', '#' or other character to be percent-encoded, and no placeholder but "+
			strings.Join(placeholders, ", "))
		refuse(strings.Contains(r.url, "=/"), "routes are separated by commas")
		refuse(climbs(plain), "the path must not have '.' or '..' as a segment")
	}
	return wrong
}

// isCovered reports whether the earlier route takes every message that r matches. It does not if its path has
// {routing_key} or {type} and r also matches messages in which that is empty.
func (r *route) isCovered(earlier route) bool {
	same := earlier.of == r.of && earlier.header == r.header
	every := (earlier.of == byKey || earlier.of == byExchange) && earlier.pattern.Covers("#")
	if r.of == unknown || !same && !every || !earlier.pattern.Covers(strings.Join(r.pattern, ".")) {
		return false
	}
	mayBeEmpty := func(of property) bool { return r.of != of || of == byKey && r.pattern.Match("") }
	return !slices.ContainsFunc([]property{byKey, byType}, func(of property) bool {
		return strings.Contains(earlier.url, placeholders[of]) && mayBeEmpty(of)
	})
}

// typeOf returns the type of the message, which is the ce-type where it is sent as an event.
func (t *Target) typeOf(m *message.Message) (kind string) {
	switch {
	case t.o.Envelopes || t.o.CloudEvents && isEnvelope(m.ContentType):
		return envelopeType(m.Body)
	case !t.o.CloudEvents:
		return m.Type
	}
	for k, v := range m.Headers {
		if name, ok := cutAttribute(k); ok && strings.EqualFold(name, "type") {
			kind, _ = v.(string)
			return kind
		}
	}
	return madeType(m)
}

// envelopeType returns the first member "type" of the JSON object in body, "" if it is not a string or too long.
func envelopeType(body []byte) string {
	for value := range members(body, "type") {
		if value.Kind() == '"' {
			return unquoted(value)
		}
	}
	return ""
}
