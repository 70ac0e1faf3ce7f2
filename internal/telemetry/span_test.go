package telemetry

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"sidecar/internal/testkit/must"
)

func startTracing(t *testing.T, o TracingOptions) *Tracing {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return NewTracing(o)
}

// traced runs f with a Tracing that exports to a collector and returns the collector after the export.
func traced(t *testing.T, o TracingOptions, f func(*Tracing)) *collector {
	t.Helper()
	c := newCollector(t)
	o.Endpoint = c.URL + o.Endpoint
	tracing := startTracing(t, o)
	f(tracing.ForQueue("q", "http://127.0.0.1/"))
	flush(t, tracing)
	return c
}

// record makes one span.
func record(tracing *Tracing) {
	s := tracing.Process(Carrier{}, Attrs{})
	s.End("ack", "success")
}

type server string

func (s server) Server() string { return string(s) }

func flush(t *testing.T, tracing *Tracing) {
	t.Helper()
	must.Do(t, tracing.Shutdown(t.Context()))
}

func TestSpansOfOneMessage(t *testing.T) {
	t.Parallel()
	var out Carrier
	c := traced(t, TracingOptions{
		Version: "1.2.3", Resource: map[string]string{"service.name": "wms-a", "deployment.environment.name": "test"},
	}, func(tracing *Tracing) {
		of := tracing.ForQueue("wms.queue.a", "http://user:secret@127.0.0.1:8080/in?key=secret")
		s := of.Process(Carrier{parent, "a=1", "k=v"}, Attrs{
			MessageID: "m-1", CorrelationID: "c-\xff", Exchange: "wms.main-exchange", RoutingKey: "\xfe", BodySize: 12, RetryCount: 10,
			Broker: server("[::1]:5672"), DeliveryTag: 7,
		})
		out = s.Client()
		s.ClientEnd(true, 503, "", "")
		s.Send("", "wms.dlq.a")
		s.SendEnd(nil)
		s.Send("wms.retry", "retry\xff")
		s.SendEnd(nil)
		s.Settle("ack")
		if s.TraceID() != traceID {
			t.Errorf("trace id %q", s.TraceID())
		}
		s.End("park", "max_retries")
		s.End("ack", "success")
	})
	checkSpansOfOneMessage(t, c, out)
}

// checkSpansOfOneMessage checks what the collector has got; out is what the app has got.
func checkSpansOfOneMessage(t *testing.T, c *collector, out Carrier) {
	t.Helper()
	for name, want := range map[string]string{
		"service.name": "wms-a", "telemetry.sdk.language": "go", "service.version": "1.2.3", "deployment.environment.name": "test",
	} {
		if c.resource[name] != want {
			t.Errorf("%s = %v, want %s", name, c.resource[name], want)
		}
	}
	root := c.spans["process wms.queue.a"]
	delivered := map[string]any{
		"messaging.system": "rabbitmq", "messaging.destination.name": "wms.main-exchange:\uFFFD:wms.queue.a",
		"messaging.destination.template": "wms.queue.a", "messaging.rabbitmq.destination.routing_key": "\uFFFD",
		"messaging.rabbitmq.message.delivery_tag": int64(7), "server.address": "::1", "server.port": int64(5672),
	}
	own := map[string]any{
		"messaging.message.id": "m-1", "messaging.message.conversation_id": "c-\uFFFD", "messaging.message.body.size": int64(12),
	}
	check(t, "process", root, span{
		links:   1,
		traceID: traceID, parent: "b7ad6b7169203331", kind: tracepb.Span_SPAN_KIND_CONSUMER, status: tracepb.Status_STATUS_CODE_ERROR, state: "a=1",
		attrs: union(delivered, own, map[string]any{
			"messaging.operation.type": "process", "messaging.operation.name": "process",
			"sidecar.retry_count": int64(10), "sidecar.redelivered": false,
			"sidecar.outcome": "park", "sidecar.reason": "max_retries", "error.type": "max_retries",
		}),
	})
	post := c.spans["POST"]
	check(t, "POST", post, span{
		traceID: traceID, parent: root.id, kind: tracepb.Span_SPAN_KIND_CLIENT, status: tracepb.Status_STATUS_CODE_ERROR, state: "a=1",
		attrs: map[string]any{
			"http.request.method": "POST", "url.full": "http://127.0.0.1:8080/in", "server.address": "127.0.0.1", "server.port": int64(8080),
			"http.response.status_code": int64(503), "error.type": "503",
		},
	})
	if want := (Carrier{"00-" + traceID + "-" + post.id + "-01", "a=1", "k=v"}); out != want {
		t.Errorf("to the app: %+v, want %+v", out, want)
	}
	send := map[string]any{"messaging.system": "rabbitmq", "messaging.operation.type": "send", "messaging.operation.name": "send"}
	for template, to := range map[string]struct{ name, key string }{
		"wms.dlq.a": {"wms.dlq.a", "wms.dlq.a"}, "wms.retry": {"wms.retry:retry\uFFFD", "retry\uFFFD"},
	} {
		check(t, template, c.spans["send "+template], span{
			traceID: traceID, parent: root.id, kind: tracepb.Span_SPAN_KIND_CLIENT, state: "a=1", links: 1,
			attrs: union(send, own, map[string]any{
				"messaging.destination.name": to.name, "messaging.destination.template": template,
				"messaging.rabbitmq.destination.routing_key": to.key,
			}),
		})
	}
	check(t, "settle", c.spans["ack wms.queue.a"], span{
		traceID: traceID, parent: root.id, kind: tracepb.Span_SPAN_KIND_CLIENT, state: "a=1",
		attrs: union(delivered, own, map[string]any{"messaging.operation.type": "settle", "messaging.operation.name": "ack"}),
	})
}

func union(all ...map[string]any) map[string]any {
	sum := make(map[string]any)
	for _, m := range all {
		maps.Copy(sum, m)
	}
	return sum
}

// TestProducerSpans: the destination of a publish is exchange and routing key; the name of the span has the exchange
// alone, because keys may be of any number.
func TestProducerSpans(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		a           Attrs
		destination string
	}{
		"send orders":        {Attrs{Exchange: "orders", RoutingKey: "created"}, "orders:created"},
		"send orders-fanout": {Attrs{Exchange: "orders-fanout"}, "orders-fanout"},
		"send amq.default":   {Attrs{RoutingKey: "a.queue"}, "a.queue"},
		"send":               {Attrs{}, "amq.default"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for id, in := range map[string]Carrier{"": {}, "b7ad6b7169203331": {Traceparent: parent}} {
				var out Carrier
				a := tt.a
				a.MessageID, a.BodySize, a.Broker = "m", 3, server("rabbit.example:5671")
				c := traced(t, TracingOptions{}, func(tracing *Tracing) {
					s := tracing.Produce(in, a)
					out = s.Carrier()
					s.Produced("published", nil)
				})
				want := map[string]any{
					"messaging.system": "rabbitmq", "messaging.operation.type": "send", "messaging.operation.name": "send",
					"messaging.destination.name": tt.destination, "messaging.destination.template": cmp.Or(a.Exchange, "amq.default"),
					"messaging.message.id": "m", "messaging.message.body.size": int64(3), "sidecar.result": "published",
					"server.address": "rabbit.example", "server.port": int64(5671),
				}
				if a.RoutingKey != "" {
					want["messaging.rabbitmq.destination.routing_key"] = a.RoutingKey
				}
				got, trace := c.spans["send "+cmp.Or(a.Exchange, "amq.default")], traceID
				if id == "" {
					trace = got.traceID // a new one
				}
				check(t, name, got, span{traceID: trace, parent: id, kind: tracepb.Span_SPAN_KIND_PRODUCER, attrs: want})
				if out.Traceparent != "00-"+trace+"-"+got.id+"-01" {
					t.Errorf("in the message: %q, want the span %s", out.Traceparent, got.id)
				}
			}
		})
	}
}

func check(t *testing.T, name string, got, want span) {
	t.Helper()
	if !maps.Equal(got.attrs, want.attrs) {
		t.Errorf("%s: attributes\n%v\nwant\n%v", name, got.attrs, want.attrs)
	}
	if got.traceID != want.traceID || got.parent != want.parent || got.kind != want.kind || got.status != want.status ||
		got.message != want.message || got.state != want.state || got.links != want.links {
		t.Errorf("%s: %+v, want %+v", name, got, want)
	}
}

func TestFailuresAreMarked(t *testing.T) {
	t.Parallel()
	c := traced(t, TracingOptions{}, func(tracing *Tracing) {
		cause := errors.New("no confirm \xff" + strings.Repeat("x", 1000))
		s := tracing.Process(Carrier{}, Attrs{})
		s.Client()
		s.ClientEnd(true, 0, "timeout", "")
		s.ClientEnd(true, 0, "ignored: none is open", "")
		s.Send("d", "")
		s.SendEnd(cause)
		s.Settle("nack")
		s.Send("e", "") // End closes it
		s.End("release", "shutdown")
		s = tracing.Produce(Carrier{}, Attrs{Exchange: "x"})
		s.Produced("failed", cause)
	})
	if post := c.spans["POST"]; post.attrs["error.type"] != "timeout" || post.attrs["http.response.status_code"] != nil {
		t.Errorf("%+v", post)
	}
	for _, name := range []string{"send d", "send x"} {
		got := c.spans[name]
		if got.status != tracepb.Status_STATUS_CODE_ERROR || !strings.HasPrefix(got.message, "no confirm \uFFFDx") || len(got.message) > 300 {
			t.Errorf("%s: %+v", name, got)
		}
		if want := map[string]any{"send d": "_OTHER", "send x": "failed"}[name]; got.attrs["error.type"] != want {
			t.Errorf("%s: error.type %v", name, got.attrs["error.type"])
		}
	}
	for _, name := range []string{"nack q", "send e", "process q"} {
		if _, ok := c.spans[name]; !ok {
			t.Errorf("%s was lost", name)
		}
	}
}

func TestUnsampledContextStillTravels(t *testing.T) {
	t.Parallel()
	var out Carrier
	c := traced(t, TracingOptions{Sampler: "always_off"}, func(tracing *Tracing) {
		s := tracing.Process(Carrier{Traceparent: parent}, Attrs{})
		out = s.Client()
		s.ClientEnd(true, 500, "", "")
		s.Settle("ack")
		s.End("ack", "success")
	})
	if !validTraceparent(out.Traceparent) || out.Traceparent[3:35] != traceID || !strings.HasSuffix(out.Traceparent, "-00") {
		t.Errorf("to the app: %q", out.Traceparent)
	}
	if len(c.spans) != 0 {
		t.Errorf("recorded %v", c.spans)
	}
}

func TestAppAttributes(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]map[string]any{
		"http://127.0.0.1/":                 {"url.full": "http://127.0.0.1/", "server.address": "127.0.0.1", "server.port": int64(80)},
		"https://app.example/x":             {"url.full": "https://app.example/x", "server.address": "app.example", "server.port": int64(443)},
		"http://[::1]:81/#f":                {"url.full": "http://[::1]:81/", "server.address": "::1", "server.port": int64(81)},
		"unix:///run/app.sock:/http/path?q": {"url.full": "unix:///run/app.sock:/http/path", "server.address": "/run/app.sock", "network.transport": "unix"},
		"":                                  {},
		"http://%zz/":                       {},
	} {
		got := make(map[string]any)
		for _, kv := range appAttrs(raw) {
			got[string(kv.Key)] = kv.Value.AsInterface()
		}
		if !maps.Equal(got, want) {
			t.Errorf("%q: %v, want %v", raw, got, want)
		}
	}
}

// TestSpanOfARoute: the span of the POST has the URL of the route, and a message without one has no such span.
func TestSpanOfARoute(t *testing.T) {
	t.Parallel()
	for failure, urls := range map[string][]any{"": {"http://app/orders/a%2Fb"}, "no_route": nil} {
		c := traced(t, TracingOptions{}, func(tracing *Tracing) {
			s := tracing.ForQueue("q", "http://app/in").Process(Carrier{}, Attrs{})
			s.Client()
			s.ClientEnd(failure == "", 0, failure, "http://app/orders/a%2Fb")
			s.Settle("ack")
			s.End("ack", "success")
		})
		post, sent := c.spans["POST"]
		if sent != (urls != nil) || sent && post.attrs["url.full"] != urls[0] {
			t.Errorf("failure %q: %v", failure, c.spans)
		}
		if _, settled := c.spans["ack q"]; !settled {
			t.Errorf("failure %q: no span of the ack in %v", failure, c.spans)
		}
	}
}
