package config

import (
	"path"
	"regexp"
	"strings"
)

// The values of SIDECAR_CLOUDEVENTS.
const (
	CloudEventsOff    = "off"
	CloudEventsBinary = "binary"
)

// Request is what of a message becomes HTTP headers. Patterns know one wildcard, `*`, and ignore case.
type Request struct {
	// Headers of the message that are sent as `Amqp-Header-<Name>`. `*` stands for any characters, upper and lower case
	// are the same: `x-tenant,app-*`.
	ForwardHeaders List `env:"FORWARD_HEADERS" envDefault:"*" allowed:"distinct header names or patterns separated by commas; none that HTTP gives a meaning to, such as 'Host'"`

	// Headers of the message that are sent under their own name. A pattern that would match a header with a meaning in
	// HTTP, such as `Authorization` or `X-Forwarded-For`, is refused, so `*` and `x-*` are.
	PassthroughHeaders List `env:"PASSTHROUGH_HEADERS" envDefault:"traceparent,tracestate,baggage" allowed:"distinct header names or patterns separated by commas; none that matches a header with a meaning in HTTP or one of the sidecar's own"`

	// `binary`: AMQP headers `cloudEvents_*` and `cloudEvents:*` become `ce-*`, and required attributes that are missing
	// are made up.
	CloudEvents string `env:"CLOUDEVENTS" envDefault:"off" oneof:"off|binary"`
}

var (
	headerPattern = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~:-]+$`)

	// meaningful are headers that servers and proxies act on; a message must never set one.
	meaningful = []string{
		"host", "content-length", "transfer-encoding", "connection", "expect", "authorization", "cookie", "set-cookie", "te",
		"trailer", "upgrade", "keep-alive", "proxy-authorization", "proxy-authenticate", "proxy-connection", "forwarded",
		"x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-forwarded-prefix",
		"x-forwarded-server", "x-real-ip", "x-original-url", "x-rewrite-url", "x-http-method-override", "x-http-method",
		"x-method-override", "range", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "accept-encoding",
	}

	// own are headers the sidecar sets itself.
	own = []string{
		"content-type", "content-encoding", "user-agent", "amqp-message-id", "amqp-correlation-id", "amqp-reply-to",
		"amqp-type", "amqp-app-id", "amqp-user-id", "amqp-priority", "amqp-expiration", "amqp-timestamp", "amqp-queue",
		"amqp-exchange", "amqp-routing-key", "amqp-original-exchange", "amqp-original-routing-key", "amqp-delivery-attempt",
		"amqp-retry-count", "amqp-max-retries", "amqp-redelivered", "amqp-last-attempt", "amqp-headers-truncated",
	}
)

func (l *loader) checkRequest() {
	const forward, through = "SIDECAR_FORWARD_HEADERS", "SIDECAR_PASSTHROUGH_HEADERS"
	r := l.cfg.Request
	if l.ok(forward) && l.checkPatterns(forward, r.ForwardHeaders) {
		for _, p := range r.ForwardHeaders {
			// Under their prefix these are harmless, but whoever names one expects what will not happen.
			if h := firstMatch(p, meaningful); h != "" && !strings.Contains(p, "*") {
				l.reject(forward, "%s has a meaning in HTTP and is never forwarded", shown(p))
				return
			}
		}
	}
	if l.ok(through) && l.checkPatterns(through, r.PassthroughHeaders) {
		for _, p := range r.PassthroughHeaders {
			h := firstMatch(p, meaningful, own)
			if strings.HasPrefix(strings.ToLower(p), "amqp-") || strings.Contains(p, ":") {
				h = p
			}
			if h != "" {
				l.reject(through, "%s would let a message set the header %s", shown(p), h)
				return
			}
		}
	}
}

func (l *loader) checkPatterns(name string, patterns List) bool {
	seen := map[string]bool{}
	for _, p := range patterns {
		switch key := strings.ToLower(p); {
		case !headerPattern.MatchString(p):
			l.reject(name, "%s is not a header name or pattern", shown(p))
			return false
		case seen[key]:
			l.reject(name, "%s is there twice: upper and lower case are the same", shown(p))
			return false
		default:
			seen[key] = true
		}
	}
	return true
}

func firstMatch(pattern string, names ...[]string) string {
	for _, list := range names {
		for _, h := range list {
			// headerPattern lets no other metacharacter of path.Match through, and no header name holds a '/'.
			if ok, err := path.Match(strings.ToLower(pattern), h); ok && err == nil {
				return h
			}
		}
	}
	return ""
}
