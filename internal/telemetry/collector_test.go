package telemetry

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	amqp "github.com/rabbitmq/amqp091-go"
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

func TestLoggerNamesItsFields(t *testing.T) {
	t.Parallel()
	var none error
	for want, fields := range map[string][]any{
		`"queue":"q","wait":"1.5s","error":"boom","g":{"msg":"kept"}}`: {
			"queue", "q", "wait", 1500 * time.Millisecond, "error", errors.New("boom"), slog.Group("g", "msg", "kept"),
		},
		`"time":"yesterday","level":"high"}`: {"time", "yesterday", "level", "high"}, // the caller's own
		`"n":0}`:                             {"error", none, "text", "", "n", 0},    // empty ones are left out, a number is never empty
	} {
		var out bytes.Buffer
		NewLogger(&out, "info", "json").Warn("settled", fields...)
		at, rest, _ := strings.Cut(strings.TrimPrefix(out.String(), `{"time":"`), `",`)
		if when, err := time.Parse(time.RFC3339Nano, at); err != nil || when.Location() != time.UTC {
			t.Errorf("time = %v, want RFC 3339 in UTC", at)
		}
		if want := `"level":"warn","msg":"settled",` + want + "\n"; rest != want {
			t.Errorf("got  %s\nwant %s", rest, want)
		}
	}
}

func TestLoggerText(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]int{"debug": 4, "info": 3, "warn": 2, "error": 1, "nonsense": 3} {
		var out bytes.Buffer
		l := NewLogger(&out, level, "text")
		l.Debug("a")
		l.Info("a")
		l.Warn("a")
		l.Error("drained", "trace_id", "t", "released", 3)
		if text := out.String(); strings.Count(text, "\n") != want || !strings.HasSuffix(text, " error drained  released=3\n") {
			t.Errorf("%s: want %d lines: %q", level, want, text)
		}
	}
}

// A publisher chooses the message id: it must stay inside its field.
func TestLoggerCannotBeInjected(t *testing.T) {
	t.Parallel()
	hostile := "x\"\n{\"msg\":\"forged\"}\r\n\x1b[31m\x00\xff\u2028 level=error"
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		NewLogger(&out, "info", format).Info("settled", "message_id", hostile)
		if n := strings.Count(out.String(), "\n"); n != 1 || !strings.HasSuffix(out.String(), "\n") {
			t.Errorf("%s: %d line feeds: %q", format, n, out.String())
		}
		if strings.ContainsAny(strings.TrimSuffix(out.String(), "\n"), "\r\x1b\x00") {
			t.Errorf("%s: control bytes left: %q", format, out.String())
		}
	}
}

// TestLibrariesLogThroughUs is not parallel: the loggers of libraries belong to the process.
func TestLibrariesLogThroughUs(t *testing.T) { //nolint:paralleltest // replaces the process's loggers
	t.Cleanup(func() {
		log.SetOutput(os.Stderr)
		log.SetFlags(log.LstdFlags)
	})
	var out bytes.Buffer
	AdoptLibraries(NewLogger(&out, "debug", "json"))

	log.Printf("from log\n")
	LibraryLog(NewLogger(&out, "debug", "json"), "http").Print("from http")
	amqp.Logger.Printf("from %s", "amqp")
	h := library{NewLogger(&out, "debug", "json").Handler(), "opentelemetry"}
	o := logr.FromSlogHandler(h)
	o.V(1).Info("from otel", "config", "not logged")
	o.WithName("n").WithValues("k", "not logged").Error(errors.New("cause"), "from otel error", "config", "not logged")
	if !o.V(4).Enabled() || o.V(8).Enabled() {
		t.Error("want OpenTelemetry's info, not its debug messages")
	}
	if h.WithGroup("g") != slog.Handler(h) {
		t.Error("want the same handler")
	}
	for _, want := range []string{
		`"level":"debug","msg":"library","library":"log","text":"from log"}`,
		`"library":"http","text":"from http"}`,
		`"library":"amqp091","text":"from amqp"}`,
		`"library":"opentelemetry","text":"from otel"}`,
		`"text":"from otel error","error":"cause"}`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in %s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "not logged") {
		t.Error("the SDK's configuration was logged")
	}

	out.Reset()
	AdoptLibraries(NewLogger(&out, "info", "json"))
	log.Print("x")
	amqp.Logger.Printf("x")
	if out.Len() != 0 {
		t.Errorf("at info: %s", out.String())
	}
}
