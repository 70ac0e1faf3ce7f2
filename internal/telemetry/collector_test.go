package telemetry

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector is an OTLP receiver that decodes and keeps what it gets.
type collector struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	resource map[string]any
	spans    map[string]span // by name
	answer   func(w http.ResponseWriter, n int)
}

type span struct {
	traceID, id, parent string
	kind                tracepb.Span_SpanKind
	attrs               map[string]any
	status              tracepb.Status_StatusCode
	message             string
	links               int      // to the parent
	linked              []string // ids of spans of other traces
	state               string
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{spans: make(map[string]span)}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(r.Body)
	}
	b, _ := io.ReadAll(body)
	var data tracepb.TracesData
	if err := proto.Unmarshal(b, &data); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, r)
	if c.answer != nil {
		c.answer(w, len(c.requests))
	}
	for _, rs := range data.GetResourceSpans() {
		c.resource = decode(rs.GetResource().GetAttributes())
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				links, linked := 0, []string(nil)
				for _, l := range s.GetLinks() {
					if string(l.GetTraceId()) == string(s.GetTraceId()) {
						links++
					} else {
						linked = append(linked, hex.EncodeToString(l.GetSpanId()))
					}
				}
				c.spans[s.GetName()] = span{
					links: links, linked: linked,
					traceID: hex.EncodeToString(s.GetTraceId()), id: hex.EncodeToString(s.GetSpanId()),
					parent: hex.EncodeToString(s.GetParentSpanId()), kind: s.GetKind(), attrs: decode(s.GetAttributes()),
					status: s.GetStatus().GetCode(), message: s.GetStatus().GetMessage(), state: s.GetTraceState(),
				}
			}
		}
	}
}

func decode(kvs []*commonpb.KeyValue) map[string]any {
	m := make(map[string]any)
	for _, kv := range kvs {
		switch v := kv.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			m[kv.GetKey()] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			m[kv.GetKey()] = v.IntValue
		case *commonpb.AnyValue_BoolValue:
			m[kv.GetKey()] = v.BoolValue
		}
	}
	return m
}
