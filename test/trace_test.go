package test

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// spanSink is an OTLP/HTTP collector that keeps what it gets.
type spanSink struct {
	mu    sync.Mutex
	spans []*trace.Span
	raw   strings.Builder
	auth  string
}

// newSpanSink returns a collector and its URL.
func newSpanSink(t *testing.T) (sink *spanSink, url string) {
	t.Helper()
	sink = &spanSink{}
	srv := httptest.NewServer(sink)
	t.Cleanup(srv.Close)
	return sink, srv.URL
}

func (k *spanSink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		in = z
	}
	b, err := io.ReadAll(in)
	var req trace.TracesData // on the wire the same as an ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(b, &req) != nil || r.URL.Path != "/v1/traces" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.raw.Write(b)
	k.auth = r.Header.Get("Authorization")
	for _, rs := range req.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			k.spans = append(k.spans, ss.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (k *spanSink) find(match func(*trace.Span) bool) []*trace.Span {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []*trace.Span
	for _, s := range k.spans {
		if match(s) {
			list = append(list, s)
		}
	}
	return list
}

// seen returns the last Authorization header, and all bodies.
func (k *spanSink) seen() (auth, bodies string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.auth, k.raw.String()
}

func attribute(s *trace.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue().String()
		}
	}
	return ""
}

// TestSpansLeave: one CONSUMER span per message under the publisher's, a CLIENT child whose context the app gets.
func TestSpansLeave(t *testing.T) {
	t.Parallel()
	sink, collector := newSpanSink(t)
	sc := newScene(t).with("MAX_RETRIES", "0").seed()
	sc.env["OTEL_EXPORTER_OTLP_ENDPOINT"], sc.env["OTEL_BSP_SCHEDULE_DELAY"] = collector, "100"
	sc.app.on("bad", status(500))
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	m := message("joined")
	m.Headers, m.Body = amqp.Table{"traceparent": parent, "tracestate": "a=1"}, []byte("canary-body")
	sc.sendMessage(m, message("fresh"), message("bad"))
	s := sc.run()
	sc.take(sc.dlq(), 1)
	sc.app.awaitAll("joined", "fresh")
	name := "process " + sc.queue()
	eventually(t, "three process spans and three POST spans", func() bool {
		return len(sink.find(func(s *trace.Span) bool { return s.GetName() == name })) >= 3 && len(sink.find(func(s *trace.Span) bool { return s.GetName() == "POST" })) >= 3
	})
	s.stop()
	for _, id := range []string{"joined", "fresh", "bad"} {
		parts := strings.Split(sc.app.seen(id)[0].header.Get("Traceparent"), "-")
		if len(parts) != 4 {
			t.Fatalf("%s: traceparent %q", id, parts)
		}
		own := func(s *trace.Span) bool { return hex.EncodeToString(s.GetTraceId()) == parts[1] }
		post := sink.find(func(s *trace.Span) bool { return own(s) && s.GetName() == "POST" })
		process := sink.find(func(s *trace.Span) bool { return own(s) && s.GetName() == name })
		if len(post) != 1 || len(process) != 1 {
			t.Fatalf("%s: %d POST spans and %d process spans in trace %s", id, len(post), len(process), parts[1])
		}
		if got := hex.EncodeToString(post[0].GetSpanId()); got != parts[2] {
			t.Errorf("%s: the app's parent is %s, the POST span is %s", id, parts[2], got)
		}
		if !slices.Equal(post[0].GetParentSpanId(), process[0].GetSpanId()) {
			t.Errorf("%s: the POST span is no child of the process span", id)
		}
		if process[0].GetKind() != trace.Span_SPAN_KIND_CONSUMER || post[0].GetKind() != trace.Span_SPAN_KIND_CLIENT {
			t.Errorf("%s: kinds %v and %v, want CONSUMER and CLIENT", id, process[0].GetKind(), post[0].GetKind())
		}
		if !strings.Contains(attribute(process[0], "messaging.system"), "rabbitmq") || !strings.Contains(attribute(post[0], "http.request.method"), "POST") {
			t.Errorf("%s: attributes %v and %v", id, process[0].GetAttributes(), post[0].GetAttributes())
		}
		if lines := s.log.settled(id); len(lines) == 0 || lines[0].text("trace_id") != parts[1] {
			t.Errorf("%s: the log line does not carry trace id %s", id, parts[1])
		}
		if id == "joined" {
			if parts[1] != "4bf92f3577b34da6a3ce929d0e0e4736" || hex.EncodeToString(process[0].GetParentSpanId()) != "00f067aa0ba902b7" {
				t.Errorf("the process span is not under the publisher's: trace %s, parent %x", parts[1], process[0].GetParentSpanId())
			}
		} else if len(process[0].GetParentSpanId()) != 0 {
			t.Errorf("%s: a message without traceparent got a parent %x", id, process[0].GetParentSpanId())
		}
	}
	if _, bodies := sink.seen(); strings.Contains(bodies, "canary-body") {
		t.Error("a body went into the trace")
	}
}

// TestCollectorAway: messages flow, the stop is clean.
func TestCollectorAway(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	sc.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://" + freeAddr(t)
	sc.send("m")
	s := sc.run()
	sc.app.await("m", 1)
	sc.settledAll(s, 0)
}
