package telemetry

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"

	"sidecar/internal/apptest"
)

// TestShutdownWithAHungCollectorIsBounded is not parallel: it checks the goroutines of the whole process.
func TestShutdownWithAHungCollectorIsBounded(t *testing.T) { //nolint:paralleltest // counts the process's goroutines
	before := goleak.IgnoreCurrent()
	hung := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hung:
		case <-r.Context().Done():
		}
	}))
	defer func() {
		close(hung)
		srv.Close()
		// The batcher's goroutine ends too, a little later. Until then its errors would reach the next test's log.
		var left error
		for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); {
			if left = goleak.Find(before); left == nil {
				return
			}
		}
		t.Error(left)
	}()
	var out apptest.Log
	tracing := startTracing(t, TracingOptions{
		Logger: NewLogger(&out, "info", "json"), Endpoint: srv.URL,
	})
	// More than the queue holds, with no collector taking them: none of this may block.
	for range 3000 {
		s := tracing.Process(Carrier{}, Attrs{})
		s.Client()
		s.End("ack", "success")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := tracing.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestADeadCollectorLogsOncePerMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		h := exportErrors(NewLogger(&out, "info", "json"))
		for range 121 {
			h.Handle(errors.New("refused"))
			time.Sleep(time.Second)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 {
			t.Fatalf("%d lines in two minutes: %s", len(lines), out.String())
		}
		for i, want := range []string{`"suppressed":0}`, `"suppressed":59}`, `"suppressed":59}`} {
			if !strings.Contains(lines[i], `"level":"warn","msg":"trace export failed","error":"refused",`+want) {
				t.Errorf("line %d: %s", i, lines[i])
			}
		}
	})
}

// TestTracingErrorsReachTheLog is not parallel: the error handler of OpenTelemetry belongs to the process.
func TestTracingErrorsReachTheLog(t *testing.T) { //nolint:paralleltest // replaces the process's error handler
	var out apptest.Log
	c := newCollector(t)
	c.answer = func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusUnauthorized) }
	tracing := startTracing(t, TracingOptions{
		Logger: NewLogger(&out, "info", "json"), Endpoint: c.URL,
	})
	record(tracing)
	flush(t, tracing)
	otel.Handle(errors.New("again"))
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "collector answered 401") {
		t.Errorf("log: %s", got)
	}
}

// postOf makes the spans of one POST of a message for each carrier, whose queues are a, b, …, and returns the trace
// contexts of the request and of the messages.
func postOf(t *Tracing, in ...Carrier) (request Carrier, messages []Carrier) {
	spans := make([]Span, len(in))
	for i := range in {
		spans[i] = t.ForQueue(string(rune('a'+i)), "http://127.0.0.1:8080/in").Process(in[i], Attrs{MessageID: "m"})
	}
	post := t.Batch(len(in), func(i int) *Span { return &spans[i] })
	request = post.Carrier()
	post.ClientEnd(true, 207, "", "http://127.0.0.1:8080/orders")
	for i := range spans {
		messages = append(messages, spans[i].Carrier())
		spans[i].End("ack", "success")
	}
	return request, messages
}

// TestSpanOfABatch: the POST has a trace of its own and links to all messages, and each message has one to the POST.
func TestSpanOfABatch(t *testing.T) {
	t.Parallel()
	var request Carrier
	var messages []Carrier
	c := traced(t, TracingOptions{}, func(tracing *Tracing) {
		request, messages = postOf(tracing, Carrier{parent, "a=1", "k=v"}, Carrier{}, Carrier{Traceparent: parent[:53] + "00"})
	})
	post, a, b := c.spans["POST"], c.spans["process a"], c.spans["process b"]
	check(t, "POST", post, span{
		traceID: post.traceID, kind: tracepb.Span_SPAN_KIND_CLIENT, attrs: map[string]any{
			"http.request.method": "POST", "url.full": "http://127.0.0.1:8080/orders", "server.address": "127.0.0.1", "server.port": int64(80),
			"http.response.status_code": int64(207), "messaging.batch.message_count": int64(3),
		},
	})
	if post.traceID == traceID || post.traceID == b.traceID {
		t.Errorf("the POST is in the trace of a message: %+v", post)
	}
	if notSampled := messages[2].Traceparent[36:52]; !slices.Equal(post.linked, []string{a.id, b.id, notSampled}) {
		t.Errorf("links of the POST %q, want %q, %q, %q", post.linked, a.id, b.id, notSampled)
	}
	for name, of := range map[string]span{"a": a, "b": b} {
		if !slices.Equal(of.linked, []string{post.id}) {
			t.Errorf("links of message %s: %q, want %q", name, of.linked, post.id)
		}
	}
	if want := (Carrier{Traceparent: "00-" + post.traceID + "-" + post.id + "-01"}); request != want {
		t.Errorf("of the request: %+v, want %+v", request, want)
	}
	if want := (Carrier{"00-" + traceID + "-" + a.id + "-01", "a=1", "k=v"}); messages[0] != want {
		t.Errorf("of a message: %+v, want %+v", messages[0], want)
	}
}

// TestSpanOfABatchOfOne: it is a child of the message's span, as without batches.
func TestSpanOfABatchOfOne(t *testing.T) {
	t.Parallel()
	c := traced(t, TracingOptions{}, func(tracing *Tracing) { postOf(tracing, Carrier{Traceparent: parent}) })
	post, root := c.spans["POST"], c.spans["process a"]
	if post.parent != root.id || post.traceID != traceID || post.linked != nil || post.links != 0 || root.linked != nil {
		t.Errorf("POST %+v of the message %+v", post, root)
	}
	if n, found := post.attrs["messaging.batch.message_count"]; found {
		t.Errorf("the count of a single message: %v", n)
	}
}
