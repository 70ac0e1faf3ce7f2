package config

import (
	"cmp"
	"errors"
	"fmt"
	"mime"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// DialectDapr is a value of SIDECAR_RESPONSE_DIALECT.
const DialectDapr = "dapr"

// Values of SIDECAR_ROUTES_ELSE, beside park.
const (
	RouteApp = "app"
	RouteAck = "ack"
)

// App is where messages are POSTed to, and how it answers.
type App struct {
	// Messages are POSTed to exactly this URL. `unix:///run/app.sock:/events` means the path `/events` over the Unix
	// socket `/run/app.sock`. Anything but this machine gets a warning: the sidecar is meant to sit beside its app.
	// Link-local addresses (cloud metadata services) are refused.
	URL string `env:"APP_URL" check:"app" holds:"{subscription}" mask:"query" envDefault:"http://127.0.0.1:8080/" allowed:"'http://…', 'https://…' or 'unix:///path/to.sock:/http/path', without user, fragment, '..' and '//'"`

	// [Paths for some messages](routes.md): `order.created=/orders,invoice.#=/invoices/{routing_key},type:refund.*=/refunds`.
	// The first pattern that matches decides. It is compared with the routing key of the first publish, or with what its
	// prefix names: `type:`, `exchange:` or `header:NAME:`.
	// The path takes the place of the one in `SIDECAR_APP_URL`; `{routing_key}`, `{type}` and `{queue}` are replaced.
	Routes []string `env:"ROUTES" allowed:"at most 256 items 'pattern=path' separated by commas"`

	// Where no pattern matches. `app`: the message goes to `SIDECAR_APP_URL`. `ack`, `park`: it is not POSTed, but acked or
	// parked with the reason `no_route`.
	RoutesElse string `env:"ROUTES_ELSE" envDefault:"app" oneof:"app|ack|park"`

	// Time for one whole attempt, from connecting to the end of the answer. At most 20 minutes, and 25 together with
	// `SIDECAR_RETRY_AFTER_MAX` or `SIDECAR_REQUEUE_DELAY_MAX`: after 30 the broker takes an unsettled message away. With
	// `SIDECAR_TOPOLOGY=native`, `SIDECAR_QUEUE_TYPE=quorum` or a quorum queue of a plan file it may be longer, on
	// [RabbitMQ 4.3](topologies.md#long-attempts), and without `SIDECAR_ORDER_BY`.
	Timeout time.Duration `env:"APP_TIMEOUT" envDefault:"30s" range:"1ms..24h"`

	// Sent to the app as `Authorization: Bearer …`.
	Token Secret `env:"APP_TOKEN" check:"token" allowed:"visible ASCII characters, no spaces"`

	// Asked with GET before messages are taken and while the app is away: any 2xx means it is up. Unset: a connection
	// that opens is enough, with `https` its TLS handshake.
	HealthPath string `env:"APP_HEALTH_PATH" check:"path" mask:"query" allowed:"a path starting with one '/', without fragment and '..'"`

	// Pause between two probes of an app that is down. One probe may take as long, and at least a second.
	HealthInterval time.Duration `env:"APP_HEALTH_INTERVAL" envDefault:"1s" range:"10ms..5m"`

	// `dapr`: the body of a 2xx may be what a Dapr subscriber answers. `{"status":"RETRY"}` retries, `"DROP"` parks,
	// `"SUCCESS"`, no status or no such JSON acks, any other status retries, and so does an object that does not end
	// within 64 KiB. `Amqp-Disposition` overrules it, and other statuses than 2xx mean what they always mean. `off`:
	// bodies say nothing.
	ResponseDialect string `env:"RESPONSE_DIALECT" envDefault:"off" oneof:"off|dapr"`
}

// checkApp warns about an app on another machine, and catches the sidecar POSTing to itself: its listener would answer
// 404 to every message.
func (l *loader) checkApp() {
	const name = "SIDECAR_APP_URL"
	if !l.ok(name) {
		return
	}
	u, _ := parseAppURL(l.cfg.App.URL)
	switch {
	case u.Scheme == "unix":
		return
	case !loopbackHost(u.Hostname()) && u.Scheme == "http":
		l.warn(name, "the app is not on this machine: messages leave it, unencrypted")
		if l.cfg.App.Token.IsSet() {
			l.warn("SIDECAR_APP_TOKEN", "goes over an unencrypted link")
		}
		return
	case !loopbackHost(u.Hostname()):
		l.warn(name, "the app is not on this machine: messages leave it")
		return
	}
	appPort, _ := strconv.Atoi(cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]))
	for _, own := range listeners {
		host, port, err := parseAddr(l.byName[own.name].value.String())
		if err == nil && port == appPort && (anyHost(host) || loopbackHost(host)) {
			l.reject(name, "is the sidecar's own %s: the app needs a port of its own", own.name)
		}
	}
}

// checkToken holds for tokens that travel in an Authorization header.
var checkToken = require(visibleASCII, "holds a space, a control character or a character outside ASCII: set the "+
	"token alone, without 'Bearer '")

// Values of SIDECAR_CLOUDEVENTS.
const (
	CloudEventsBinary     = "binary"
	CloudEventsStructured = "structured"
)

// Request is what of a message becomes HTTP headers.
type Request struct {
	// The content type of a message or a row of the outbox without one. `auto`: `application/json` if the body is one whole
	// JSON object or array in UTF-8 (a body over 1 MiB is judged by its first and last byte). Otherwise a request has
	// `application/octet-stream`, or none with `SIDECAR_CLOUDEVENTS=binary`, and a row stays without one. A message with the
	// type `application/octet-stream` counts as one without. Not used with `SIDECAR_CLOUDEVENTS=structured`.
	DefaultContentType string `env:"DEFAULT_CONTENT_TYPE" check:"mediatype" envDefault:"auto" allowed:"'auto', or a media type such as 'text/plain; charset=utf-8'"`

	// Headers of the message that are sent as `Amqp-Header-<Name>`. `*` stands for any characters, `?` for one; upper
	// and lower case are the same: `x-tenant,app-*`.
	ForwardHeaders []string `env:"FORWARD_HEADERS" check:"headers" envDefault:"*" allowed:"distinct header names or patterns separated by commas"`

	// Headers of the message that are sent under their own name. A pattern that would match a header with a meaning in
	// HTTP, such as `Authorization` or `X-Forwarded-For`, is refused, so `*` and `x-*` are.
	PassthroughHeaders []string `env:"PASSTHROUGH_HEADERS" check:"headers" envDefault:"traceparent,tracestate,baggage" allowed:"distinct header names or patterns separated by commas; except those that match a header with a meaning in HTTP or a header of the sidecar"`

	// `binary`: AMQP headers `cloudEvents_*` and `cloudEvents:*` become `ce-*`, bytes in base64, and required attributes
	// that are missing are made up; a body without a content type that is not JSON has none in the request either. `structured`: every body is a
	// CloudEvents envelope in JSON, as Dapr publishes them, and is sent as `application/cloudevents+json` unless the
	// message's own content type says that already.
	CloudEvents string `env:"CLOUDEVENTS" envDefault:"off" oneof:"off|binary|structured"`
}

func checkMediaType(v string) error {
	if v == "auto" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(v)
	switch {
	case err != nil, !strings.Contains(kind, "/"), strings.Contains(kind, "*"), len(v) > 255,
		!visibleASCII(strings.ReplaceAll(v, " ", "")):
		return errors.New("not a media type")
	case strings.HasPrefix(kind, "application/cloudevents"):
		return errors.New("a body is an event with SIDECAR_CLOUDEVENTS=structured")
	}
	return nil
}

var headerPattern = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.?^_|~:-]+$`)

// headerPatterns returns the items of a list of header names and patterns, none of them with an error.
func headerPatterns(list string) ([]string, error) {
	patterns, err := split(list)
	seen := map[string]bool{}
	for _, p := range patterns {
		key := strings.ToLower(p)
		if !headerPattern.MatchString(p) {
			return nil, fmt.Errorf("%s is not a header name or pattern", shown(p))
		}
		if seen[key] {
			return nil, fmt.Errorf("%s is there twice: upper and lower case are the same", shown(p))
		}
		seen[key] = true
	}
	return patterns, err
}
