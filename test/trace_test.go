package test

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

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

// TestSpansLeave: a PRODUCER span for what the app publishes, one CONSUMER span per message under the publisher's, and a
// CLIENT child whose context the app gets.
func TestSpansLeave(t *testing.T) {
	t.Parallel()
	sink, collector := newSpanSink(t)
	sc := publishing(t)
	sc.env["OTEL_EXPORTER_OTLP_ENDPOINT"], sc.env["OTEL_BSP_SCHEDULE_DELAY"] = collector, "100"
	sc.app.on("fresh", status(500))
	s := sc.run()
	s.published("/publish/default/k", "canary-body", map[string]string{
		"Idempotency-Key": "joined", "Traceparent": parentTrace, "Tracestate": "a=1", "Baggage": "b=2",
	})
	sc.send("fresh")
	sc.take(sc.dlq(), 1)
	checkHeaders(t, "joined", sc.app.await("joined", 1)[0], map[string]string{"Tracestate": "a=1", "Baggage": "b=2"})
	sc.settledAll(s, 0) // all spans have left
	send := sink.find(func(s *trace.Span) bool { return s.GetName() == "send "+sc.exchange() })
	if len(send) != 1 || send[0].GetKind() != trace.Span_SPAN_KIND_PRODUCER || hex.EncodeToString(send[0].GetTraceId()) != "4bf92f3577b34da6a3ce929d0e0e4736" ||
		hex.EncodeToString(send[0].GetParentSpanId()) != "00f067aa0ba902b7" {
		t.Fatalf("send spans: %v", send)
	}
	for id, parent := range map[string][]byte{"joined": send[0].GetSpanId(), "fresh": {}} {
		parts := strings.Split(sc.app.Seen(id)[0].Header.Get("Traceparent"), "-")
		if len(parts) != 4 {
			t.Fatalf("%s: traceparent %q", id, parts)
		}
		named := func(name string) []*trace.Span {
			return sink.find(func(s *trace.Span) bool { return hex.EncodeToString(s.GetTraceId()) == parts[1] && s.GetName() == name })
		}
		post, process := named("POST"), named("process "+sc.queue())
		if len(post) != 1 || len(process) != 1 {
			t.Fatalf("%s: %d POST spans and %d process spans in trace %s", id, len(post), len(process), parts[1])
		}
		if hex.EncodeToString(post[0].GetSpanId()) != parts[2] || !bytes.Equal(post[0].GetParentSpanId(), process[0].GetSpanId()) ||
			!bytes.Equal(process[0].GetParentSpanId(), parent) {
			t.Errorf("%s: the app's parent is %s, the spans are %v, %v", id, parts[2], process[0], post[0])
		}
		if process[0].GetKind() != trace.Span_SPAN_KIND_CONSUMER || post[0].GetKind() != trace.Span_SPAN_KIND_CLIENT {
			t.Errorf("%s: kinds %v and %v, want CONSUMER and CLIENT", id, process[0].GetKind(), post[0].GetKind())
		}
		if lines := s.log.settled(id); len(lines) == 0 || lines[0].text("trace_id") != parts[1] {
			t.Errorf("%s: the log line does not carry trace id %s", id, parts[1])
		}
	}
	if _, bodies := sink.seen(); strings.Contains(bodies, "canary-body") {
		t.Error("a body went into the trace")
	}
}
