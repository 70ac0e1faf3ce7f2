package publish

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

func TestPublished(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	got := r.post("/publish/default/orders.created", "\x00body\xff", "Content-Type", "application/json", "Content-Encoding", "gzip",
		"Amqp-Message-Id", "m%251", "Amqp-Correlation-Id", "c", "Amqp-Reply-To", "r", "Amqp-Type", "t", "Amqp-App-Id", "a", "Amqp-Priority", "7",
		"Amqp-Expiration", "60000", "Amqp-Timestamp", "2026-07-01T14:00:00.5+02:00", "Amqp-Header-Tenant-Id", "%20a%0D%0Ab", "Amqp-Header-Empty", "")
	r.wantPublished("a message", got)
	d := r.next("\x00body\xff")
	want := amqp.Table{"tenant-id": " a\r\nb", "empty": ""}
	if d.ContentType != "application/json" || d.ContentEncoding != "gzip" || d.MessageId != "m%1" ||
		d.CorrelationId != "c" || d.ReplyTo != "r" || d.Type != "t" || d.AppId != "a" || d.Priority != 7 || d.Expiration != "60000" ||
		!d.Timestamp.Equal(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)) || d.DeliveryMode != amqp.Persistent ||
		d.RoutingKey != "orders.created" || d.Exchange != r.exchange || fmt.Sprint(r.own(&d)) != fmt.Sprint(want) ||
		got.Header.Get("Amqp-Message-Id") != "m%251" {
		t.Errorf("%+v", d)
	}
	for path, key := range map[string]string{
		"/publish/default/": "", "/publish/default/a/b//c/": "a/b//c/", "/publish/default/../x/./y": "../x/./y", "/publish/default/a%2Fb%20c%25": "a/b c%",
		"/publish/default/%3F%23": "?#", "/publish/default/a+b:c@d": "a+b:c@d", "/publish/default/%C3%BC": "ü",
		"/publish/default/" + strings.Repeat("k", 255): strings.Repeat("k", 255),
	} {
		got := r.post(path, "")
		r.wantPublished(path, got)
		if d := r.next(""); d.RoutingKey != key || len(r.own(&d)) != 0 || !newUUID.MatchString(d.MessageId) ||
			got.Header.Get("Amqp-Message-Id") != d.MessageId || d.ContentType != "" {
			t.Errorf("%s: %+v", path, d)
		}
	}
	r.wantPublished("the default exchange", r.post("/publish/direct/"+r.queue, "x"))
	if d := r.next("x"); d.Exchange != "" || d.RoutingKey != r.queue {
		t.Errorf("%+v", d)
	}
	for name, want := range map[string]float64{"sidecar_publish_requests_total": 10, "sidecar_publish_confirm_duration_seconds": 10, "sidecar_publish_duration_seconds": 10} {
		if n := r.metric(name); n != want {
			t.Errorf("%s: %v", name, n)
		}
	}
	if n := r.metric("sidecar_publish_requests_total", "exchange", "default", "result", "published"); n != 9 {
		t.Errorf("counted %v", n)
	}
}

// TestHeadersOfOtherProgrammes: an encoding that HTTP does not have returns as it came, keys may be quoted, events name their message.
func TestHeadersOfOtherProgrammes(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	event := func(source, id string, more ...string) []string {
		return append([]string{"Ce-Specversion", "1.0", "Ce-Source", source, "Ce-Id", id}, more...)
	}
	long := strings.Repeat("s", 250)
	hashed := fmt.Sprintf("%x", sha256.Sum256([]byte(long+" 12345")))
	for _, c := range []struct {
		headers      []string
		id, encoding string
		at           int64
	}{
		{[]string{"Idempotency-Key", `"8e03"`, "Amqp-Content-Encoding", "utf-8", "Amqp-Timestamp", "1772000000.7"}, "8e03", "utf-8", 1772000000},
		{[]string{"Idempotency-Key", `"a\"b"`, "Amqp-Message-Id", `a"b`, "Content-Encoding", "utf-8"}, `a"b`, "utf-8", 0},
		{[]string{"Idempotency-Key", `"`, "Amqp-Timestamp", "2026-02-25 06:13:20+00"}, `"`, "", 1772000000},
		{event("/orders", `"1"`), "/orders 1", "", 0},
		{event("/orders", "1", "Idempotency-Key", "k"), "k", "", 0},
		{event("/orders", "1", "Amqp-Message-Id", "m"), "m", "", 0},
		{event(long, "1234"), long + " 1234", "", 0},
		{event(long, "12345"), hashed, "", 0},
		{event("100%25", "1"), "100% 1", "", 0},
	} {
		r.wantPublished(c.id, r.post("/publish/default/k", "", c.headers...))
		if d := r.get(); d.MessageId != c.id || d.ContentEncoding != c.encoding || c.at > 0 && d.Timestamp.Unix() != c.at {
			t.Errorf("%q: %q, %q, %s", c.headers, d.MessageId, d.ContentEncoding, d.Timestamp)
		}
	}
}

// Bodies of unknown length, of the largest size, and one byte more.
func TestBodies(t *testing.T) {
	t.Parallel()
	const limit = 200_000
	r := start(t, "", func(o *Options) { o.MaxBody = limit })
	for _, size := range []int{1, 511, 512, 64 << 10, 64<<10 + 1, limit, limit + 1} {
		body := strings.Repeat("b", size)
		for what, reader := range map[string]io.Reader{"known": strings.NewReader(body), "chunked": io.MultiReader(strings.NewReader(body))} {
			got := r.do(http.MethodPost, "/publish/default/k", reader)
			if size > limit {
				r.want(what, got, http.StatusRequestEntityTooLarge, tooLarge, "SIDECAR_MAX_BODY")
				continue
			}
			r.wantPublished(fmt.Sprint(what, size), got)
			r.next(body)
		}
	}
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	long := strings.Repeat("x", 256)
	for _, c := range []struct{ name, value, text string }{
		{"Amqp-Nonsense", "x", "Amqp-Nonsense is not a property"},
		{"Amqp-Priority", "256", "Amqp-Priority"}, {"Amqp-Priority", "-1", "Amqp-Priority"},
		{"Amqp-Expiration", "5s", "Amqp-Expiration"}, {"Amqp-Expiration", "-1", "Amqp-Expiration"}, {"Amqp-Expiration", "0", "from 1 to"},
		{"Amqp-Reply-To", "amq.rabbitmq.reply-to", "reply-to"}, {"Amqp-Expiration", "4294967296", "Amqp-Expiration"},
		{"Amqp-Timestamp", "yesterday", "Amqp-Timestamp"}, {"Amqp-Timestamp", "2026-01-31 12:00:00", "with a zone"}, {"Amqp-Timestamp", "0001-01-01T00:00:00Z", "AMQP cannot carry"}, {"Amqp-Timestamp", "0001-01-01T01:00:00.5+01:00", "AMQP cannot carry"},
		{"Amqp-Message-Id", "100%", "Amqp-Message-Id is not percent-encoded"}, {"Amqp-Message-Id", "%zz", "Amqp-Message-Id"}, {"Amqp-Header-A", "%4", "Amqp-Header-A"},
		{"Amqp-Priority", "%", "Amqp-Priority"}, {"Content-Encoding", "%x", "Content-Encoding"}, {"Idempotency-Key", "%", "Idempotency-Key"}, {"Idempotency-Key", "", "empty"},
		{"Amqp-Message-Id", long, "Amqp-Message-Id has 256 bytes"}, {"Content-Type", long, "Content-Type"}, {"Idempotency-Key", long, "Idempotency-Key"},
		{"Amqp-Header-" + strings.Repeat("k", 256), "v", "256 bytes"},
		{"Amqp-Header-Large", strings.Repeat("v", 140_000), "do not fit a frame"},
	} {
		got := r.post("/publish/default/k", "", c.name, c.value)
		r.want(c.name+" "+c.value[:min(len(c.value), 20)], got, http.StatusBadRequest, invalid, c.text)
	}
	for _, name := range []string{"Amqp-Message-Id", "Amqp-Header-A", "Content-Type", "Idempotency-Key", "Amqp-Priority"} {
		r.want(name+" twice", r.post("/publish/default/k", "", name, "1", name, "1"), http.StatusBadRequest, invalid, name+" is there 2 times")
	}
	event := r.post("/publish/default/k", "", "Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Id", "2")
	r.want("an attribute twice", event, http.StatusBadRequest, invalid, "Ce-Id")
	r.want("an attribute", r.post("/publish/default/k", "", "Ce-Specversion", "1.0", "Ce-Id", "%"), http.StatusBadRequest, invalid, "Ce-Id")
	r.want("two encodings", r.post("/publish/default/k", "", "Content-Encoding", "gzip", "Amqp-Content-Encoding", "utf-8"), http.StatusBadRequest, invalid, "both set")
	r.want("two ids", r.post("/publish/default/k", "", "Idempotency-Key", "a", "Amqp-Message-Id", "b"), http.StatusBadRequest, invalid, "differ")
	r.want("a query", r.post("/publish/default/k?x", ""), http.StatusBadRequest, invalid, "%3F")
	r.want("an empty query", r.post("/publish/default/k?", ""), http.StatusBadRequest, invalid, "%3F")
	r.want("no key", r.post("/publish/default", ""), http.StatusBadRequest, invalid, "/publish/{exchange}/{routing key}")
	r.want("a long key", r.post("/publish/default/"+long, ""), http.StatusBadRequest, invalid, "routing key has 256 bytes")
	// None of this has reached the channel: the next message needs no other one.
	r.wantPublished("afterwards", r.post("/publish/default/k", "last"))
	if r.next("last"); len(r.server.inflight) != 0 {
		t.Error("something is still counted")
	}
	if n := r.metric("sidecar_publish_requests_total", "exchange", "default", "result", "invalid"); n == 0 {
		t.Error("not counted")
	}
}

// What says how a message was delivered, or is a broker's or a sidecar's to say, is left out.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	var headers []string
	for name := range deliveryHeaders {
		headers = append(headers, name, "1")
	}
	for _, name := range []string{
		"X-Death", "X-Death-Count", "X-First-Death-Queue", "X-Last-Death-Reason", "X-Delivery-Count", "X-Acquired-Count", "X-Final-Error", "X-Redriven-At",
		"X-Retry-Count", "x_retry.queue", "X-Original-Queue", "X-Original-Exchange", "X-Original-Routing-Key", "Cc", "Bcc",
	} {
		headers = append(headers, "Amqp-Header-"+name, r.queue)
	}
	r.wantPublished("a message", r.post("/publish/default/k", "", append(headers, "Amqp-Header-Kept", "v", "Idempotency-Key", "%41b", "Amqp-Message-Id", "Ab", "Ce-Id", "no event", "X-Other", "no")...))
	if d := r.get(); len(r.own(&d)) != 1 || d.Headers["kept"] != "v" || d.MessageId != "Ab" || d.UserId != "" {
		t.Errorf("%+v", d)
	}
}

// The trace of the app goes on in the message. A message without a valid one gets one, always of the same trace for the
// same message id.
func TestTraceContext(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	const parent, other = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-01"
	for name, c := range map[string]struct {
		headers []string
		want    amqp.Table
	}{
		"all of it":           {[]string{"Traceparent", parent, "Tracestate", "a=1", "Tracestate", "b=2", "Baggage", "c=3"}, amqp.Table{"traceparent": parent, "tracestate": "a=1,b=2", "baggage": "c=3"}},
		"two parents":         {[]string{"Traceparent", parent, "Traceparent", other, "Tracestate", "a=1"}, amqp.Table{}},
		"no parent":           {[]string{"Traceparent", "x", "Baggage", "c=3"}, amqp.Table{"baggage": "c=3"}},
		"the message's own":   {[]string{"Amqp-Header-Traceparent", other}, amqp.Table{"traceparent": other}},
		"not the message's":   {[]string{"Traceparent", parent, "Amqp-Header-Traceparent", other, "Amqp-Header-Tracestate", "x"}, amqp.Table{"traceparent": parent}},
		"a state of its own":  {[]string{"Amqp-Header-Tracestate", "a=1"}, amqp.Table{}},
		"beside other header": {[]string{"Traceparent", parent, "Amqp-Header-A", "1"}, amqp.Table{"traceparent": parent, "a": "1"}},
	} {
		r.wantPublished(name, r.post("/publish/default/k", "", c.headers...))
		d := r.get()
		if c.want["traceparent"] == nil {
			r.own(&d)
		}
		if fmt.Sprint(d.Headers) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v", name, d.Headers)
		}
	}
	// The trace of an item wins over that of its batch.
	r.results(r.post("/publish:batch", `{"routing_key":""}`+"\n"+`{"routing_key":"","headers":{"traceparent":"`+other+`"}}`,
		"Content-Type", "application/json-lines", "Traceparent", parent))
	for _, want := range []string{parent, other} {
		if d := r.get(); d.Headers["traceparent"] != want {
			t.Errorf("%v", d.Headers)
		}
	}
	var traces []string
	for _, key := range []string{"k-1", "k-1", "k-2"} {
		r.wantPublished(key, r.post("/publish/default/k", "", "Idempotency-Key", key))
		traces = append(traces, fmt.Sprint(r.get().Headers["traceparent"])[:36])
	}
	if traces[0] != traces[1] || traces[0] == traces[2] {
		t.Errorf("%v", traces)
	}
}

var newUUID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// TestTheAnswerNamesTheMessage: whatever the answer is once the message has been read, it has the id, as it was written
// but for the bytes that a terminal may obey.
func TestTheAnswerNamesTheMessage(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.Exchanges["gone"] = "no such exchange" })
	for _, path := range []string{"/publish/default/k", "/publish/gone/k"} {
		for name, headers := range map[string][]string{
			`^a key%22$`: {"Idempotency-Key", "a%20key%22"}, "^id/1%0A$": {"Amqp-Message-Id", "id/1%0A"},
			`^%C3%BC%9B%C2%9B\\ 25%25%09x$`: {"Idempotency-Key", "ü\x9b\u009b\\ 25%25\tx"},
			"^both$":                        {"Amqp-Message-Id", "both", "Idempotency-Key", "both"}, "^empty$": {"Amqp-Message-Id", "", "Idempotency-Key", "empty"},
			newUUID.String(): {"Amqp-Message-Id", ""},
		} {
			if got := r.post(path, "", headers...); !regexp.MustCompile(name).MatchString(got.Header.Get("Amqp-Message-Id")) {
				t.Errorf("%s %s: %d %v", path, name, got.StatusCode, got.Header)
			}
		}
	}
	if got := r.post("/publish/default/k", "", "Amqp-Priority", "x"); got.Header["Amqp-Message-Id"] != nil {
		t.Errorf("%v", got.Header)
	}
}

func TestForbidden(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.RoutingKeys = []string{"orders.*", "audit.?", "exact"} })
	for _, alias := range []string{"other", "", "Default", "%64efault", "amq.default"} {
		r.want(alias, r.post("/publish/"+alias+"/exact", ""), http.StatusForbidden, forbidden, "no exchange alias")
	}
	for _, key := range []string{"", "Exact", "exact.", "audit.", "audit.xx", "order", "xorders.a"} {
		r.want(key, r.post("/publish/default/"+key, ""), http.StatusForbidden, forbidden, "SIDECAR_PUBLISH_ROUTING_KEYS")
	}
	for _, key := range []string{"orders.", "orders.a.b/c", "audit.x", "exact"} {
		r.wantPublished(key, r.post("/publish/default/"+key, ""))
	}
}

// TestDirectReply: a reply gets a 204 if and only if its requester was there, alone and in a batch.
func TestDirectReply(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.Exchanges["reply"] = "" })
	requester := brokertest.Channel(t, r.url)
	replies := must.Get(requester.Consume(message.DirectReply, "", true, false, false, false, nil))(t)
	must.Do(t, requester.Publish("", r.queue, false, false, amqp.Publishing{ReplyTo: message.DirectReply}))
	request := r.get()
	alone := func() reply {
		return r.post("/publish/reply/"+url.PathEscape(request.ReplyTo), "answer", "Amqp-Correlation-Id", "7")
	}
	batch := func() []result {
		return r.batch(fmt.Sprintf(`{"exchange":"reply","routing_key":%q,"correlation_id":"7","body":"answer"}`, request.ReplyTo))
	}
	r.wantPublished("alone", alone())
	r.wantCodes("batch", batch(), published)
	for range 2 {
		if d := <-replies; string(d.Body) != "answer" || d.CorrelationId != "7" {
			t.Errorf("the requester got %q, %q", d.Body, d.CorrelationId)
		}
	}
	must.Do(t, requester.Close())
	r.want("gone", alone(), http.StatusNotFound, unroutable, "the requester has gone")
	got := batch()
	if r.wantCodes("batch", got, unroutable); !strings.Contains(got[0].Detail, "the requester has gone") {
		t.Error(got[0].Detail)
	}
	// A queue for replies is a queue.
	r.wantPublished("a queue", r.post("/publish/reply/"+r.queue, "x"))
	r.want("no queue", r.post("/publish/reply/"+message.DirectReply, "x"), http.StatusNotFound, unroutable, "does not exist")
}
