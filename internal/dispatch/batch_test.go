package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/apptest"
	"sidecar/internal/message"
)

func inBatches(format string) func(*Options) { return func(o *Options) { o.BatchFormat = format } }

// samples are n messages with the ids m-0, m-1 …
func samples(n int) []*message.Message {
	ms := make([]*message.Message, n)
	for i := range ms {
		ms[i] = sample()
		ms[i].MessageID = "m-" + itoa(i)
	}
	return ms
}

// dispatchAll POSTs ms in one request and checks what holds for the outcomes of any.
func dispatchAll(tb testing.TB, t *Target, ms ...*message.Message) (whole message.Outcome, each []message.Outcome) {
	tb.Helper()
	whole, each = t.DispatchBatch(context.Background(), ms, message.TraceContext{})
	if whole.At.IsZero() || whole.Elapsed <= 0 {
		tb.Errorf("outcome without a time: %+v", whole)
	}
	if each != nil && (len(each) != len(ms) || !whole.OK()) {
		tb.Fatalf("%d outcomes for %d messages, status %d", len(each), len(ms), whole.Status)
	}
	for i, o := range each {
		if o.At != whole.At || o.Elapsed != whole.Elapsed || o.Failure != message.FailureNone || o.Err != nil || o.Answer != "" {
			tb.Errorf("outcome %d: %+v", i, o)
		}
	}
	return whole, each
}

// wantFailed checks that a batch has failed as a whole.
func wantFailed(t *testing.T, whole message.Outcome, each []message.Outcome, f message.Failure, text string) {
	t.Helper()
	if wantFailure(t, whole, f, text); each != nil {
		t.Errorf("%+v", each)
	}
}

// answeredAll returns what an app says of n messages in one POST.
func answeredAll(t *testing.T, answer string, n int, changes ...func(*Options)) (whole message.Outcome, each []message.Outcome) {
	t.Helper()
	s := apptest.Listen(t, apptest.Answer(answer))
	target := newTarget(t, s.URL, append(changes, inBatches("jsonl"))...)
	whole, each = dispatchAll(t, target, samples(n)...)
	wantSeen(t, s, 1, 1)
	return whole, each
}

// postAll dispatches ms to an app that answers 204 and returns the request it got.
func postAll(t *testing.T, format string, ms []*message.Message, changes ...func(*Options)) (*apptest.Request, message.Outcome, []message.Outcome) {
	t.Helper()
	s, target := listen(t, 204, append(changes, inBatches(format))...)
	whole, each := dispatchAll(t, target, ms...)
	wantStatus(t, whole, 204)
	for _, o := range each {
		wantStatus(t, o, 204)
	}
	wantSeen(t, s, 1, 1)
	return s.Requests()[0], whole, each
}

// everything is a message with every property.
func everything() *message.Message {
	return &message.Message{
		Body: []byte(`{"n": 1}`), ContentType: "application/json", ContentEncoding: "identity", MessageID: "id-1",
		CorrelationID: "corr", ReplyTo: "reply", Type: "order", AppID: "shop", UserID: "guest", Expiration: "60000",
		Timestamp: time.Date(2026, 7, 1, 12, 0, 0, 0, time.FixedZone("CEST", 7200)), Priority: 5,
		Queue: "q", Exchange: "ex", RoutingKey: "a.b", Redelivered: true, RetryCount: 3, MaxRetries: 3,
		Trace: message.TraceContext{
			Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Tracestate: "a=b", Baggage: "k=v%20w",
		},
		Headers: amqp.Table{"tenant": "acme", "n": int64(7), "x-death": []any{}, "x-original-exchange": "e", "CC": "x",
			"traceparent": "00-11111111111111111111111111111111-2222222222222222-00", "secret": "s"},
	}
}

// Each line is the message itself in JSON, also where nothing of the message is harmless.
func TestJSONLinesOfHostileMessages(t *testing.T) {
	t.Parallel()
	m := everything()
	m.Trace = message.TraceContext{}
	m.Headers = amqp.Table{"\xff\n": "\x00\xff", "a\r\nb": []any{amqp.Table{"\"": amqp.Decimal{Scale: 255, Value: -1}}, nil}, "": int8(-1)}
	m.MessageID, m.Type, m.Exchange, m.RoutingKey = "\xff\r\n", "\u2028</script>", "e\x00", "\"}\n{"
	m.Body = []byte("}\n{\"index\":0}\u2028\x7f")
	r, _, _ := postAll(t, "jsonl", []*message.Message{m, m})
	lines := strings.SplitAfter(string(r.Body), "\n")
	if len(lines) != 3 || lines[2] != "" || lines[0] != lines[1] {
		t.Fatalf("%q", r.Body)
	}
	form := amqp.Publishing{
		ContentType: m.ContentType, ContentEncoding: m.ContentEncoding, Priority: m.Priority, CorrelationId: m.CorrelationID,
		ReplyTo: m.ReplyTo, Expiration: m.Expiration, MessageId: m.MessageID, Timestamp: m.Timestamp, Type: m.Type,
		UserId: m.UserID, AppId: m.AppID, Headers: m.Headers, Body: m.Body,
	}
	own, ok := strings.CutSuffix(lines[0], `,"delivery":{"attempt":4,"retry_count":3,"last_attempt":true,"redelivered":true,"queue":"q"}}`+"\n")
	if want := string(amqpvalue.AppendLine(nil, m.Exchange, m.RoutingKey, &form)); !ok || own+"}" != want {
		t.Errorf("got %s, want %s", lines[0], want)
	}
	if !json.Valid([]byte(lines[0])) {
		t.Error("not JSON")
	}
}

// Headers of the broker and of a trace are not those of the publisher, of which those are in a line that are forwarded.
func TestHeadersOfJSONLines(t *testing.T) {
	t.Parallel()
	m, traced := everything(), everything()
	m.Trace = message.TraceContext{}
	traced.Trace = message.TraceContext{Traceparent: "00-1-2-03"}
	traced.Headers = amqp.Table{"TraceParent": "own", "baggage": "own"}
	forward := func(o *Options) { o.Forward, o.Passthrough = []string{"t*"}, []string{"n"} }
	r, _, _ := postAll(t, "jsonl", []*message.Message{m, traced, sample()}, forward)
	var got []string
	for line := range bytes.Lines(r.Body) {
		var v struct{ Headers json.RawMessage }
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		got = append(got, string(v.Headers))
	}
	if want := []string{`{"n":7,"tenant":"acme"}`, `{"traceparent":"00-1-2-03"}`, ""}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBatchHead(t *testing.T) {
	t.Parallel()
	s := apptest.Listen(t, apptest.Answer(apptest.Status(204)))
	target := newTarget(t, s.URL+"/in?x=1", inBatches("jsonl"), func(o *Options) {
		o.Routes = []string{"order.#=/orders/{routing_key}"}
		o.Unrouted, o.Token = true, func() string { return "s3cret" }
	})
	trace := message.TraceContext{Traceparent: "00-1-2-03", Tracestate: "a=b", Baggage: "c=d"}
	whole, each := target.DispatchBatch(t.Context(), samples(2), trace)
	if whole.Route != 1 || whole.URL != s.URL+"/orders/order.created" || each[1].Route != 1 || each[1].URL != whole.URL {
		t.Errorf("%+v %+v", whole, each)
	}
	m := sample()
	m.RoutingKey = "other"
	if whole, each = dispatchAll(t, target, m); whole.Route != 0 || whole.URL != "" || each[0].URL != "" {
		t.Errorf("%+v %+v", whole, each)
	}
	r := s.Requests()
	if r[0].Target != "/orders/order.created?x=1" || r[1].Target != "/in?x=1" {
		t.Errorf("%s, %s", r[0].Target, r[1].Target)
	}
	wantHeaders(t, r[0].Header, map[string]string{"Traceparent": "00-1-2-03", "Tracestate": "a=b", "Baggage": "c=d", "Amqp-Queue": "", "Authorization": "Bearer s3cret"})
	wantHeaders(t, r[1].Header, map[string]string{"Traceparent": "", "Tracestate": "", "Baggage": ""})
}

// A batch that is not POSTed.
func TestBatchThatIsNotSent(t *testing.T) {
	t.Parallel()
	s, target := listen(t, 204, inBatches("jsonl"), func(o *Options) { o.MaxBody, o.Routes = 100, []string{"order.#=/orders"} })
	for _, ms := range [][]*message.Message{{sized(101)}, {sample(), sized(101)}} {
		whole, each := dispatchAll(t, target, ms...)
		wantFailed(t, whole, each, message.FailureTooLarge, "body too large: 101 bytes, limit 100")
	}
	whole, each := dispatchAll(t, target, keyed("other", ""))
	wantFailed(t, whole, each, message.FailureNoRoute, "no route matches")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(errors.New("drain"))
	whole, each = target.DispatchBatch(ctx, samples(2), message.TraceContext{})
	wantFailed(t, whole, each, message.FailureInterrupted, "drain")
	wantSeen(t, s, 0, 0)
	whole, each = dispatchAll(t, newTarget(t, apptest.Refused(t), inBatches("jsonl")), samples(2)...)
	wantFailed(t, whole, each, message.FailureRefused, "refused")
}

// TestDocumentedBatches: the requests of docs/batches.md are what an app gets. A page leaves out the usual headers, and a
// boundary is another one each time.
func TestDocumentedBatches(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/batches.md")
	if err != nil {
		t.Fatal(err)
	}
	ms := []*message.Message{
		{
			Body: []byte(`{"id":42}`), ContentType: "application/json", MessageID: "order-42-created", Queue: "shop.queue.shop-billing",
			Exchange: "shop.main-exchange", RoutingKey: "order.created", MaxRetries: 10, Timestamp: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC),
			Headers: amqp.Table{"tenant": "a"},
			Trace:   message.TraceContext{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		},
		{
			Body: []byte("\x00\xff"), ContentType: "image/png", MessageID: "image-7", Queue: "shop.queue.shop-billing",
			Exchange: "shop.main-exchange", RoutingKey: "image.stored", MaxRetries: 10,
			Trace: message.TraceContext{Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		},
	}
	for format := range formats {
		r, _, _ := postAll(t, format, ms)
		got := "POST /events HTTP/1.1\nContent-Type: " + r.Header.Get("Content-Type") + "\n\n" + string(r.Body)
		got = strings.TrimSuffix(got, "\n")
		_, section, _ := strings.Cut(string(page), "\n### "+format+"\n")
		_, block, found := strings.Cut(section, "```http\n")
		block, _, ended := strings.Cut(block, "\n```")
		if !found || !ended || block != got {
			t.Errorf("%s: documented\n%s\nwant\n%s", format, block, got)
		}
	}
}
