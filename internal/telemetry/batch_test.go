package telemetry

import (
	"slices"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

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

// TestBatchOfUnsampledMessages: the POST of messages whose traces are not recorded is not recorded.
func TestBatchOfUnsampledMessages(t *testing.T) {
	t.Parallel()
	off := Carrier{Traceparent: parent[:53] + "00"}
	var request Carrier
	c := traced(t, TracingOptions{}, func(tracing *Tracing) { request, _ = postOf(tracing, off, off) })
	if len(c.spans) != 0 || !validTraceparent(request.Traceparent) || request.Traceparent[53:] != "00" {
		t.Errorf("request %+v, spans %v", request, c.spans)
	}
}
