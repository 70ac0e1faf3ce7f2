package publish

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/httpguard"
	"sidecar/internal/testkit/must"
)

// want checks a refusal: a problem document with that status and code, whose detail holds text.
func (r *rig) want(what string, got reply, status int, c code, text string) {
	r.Helper()
	var p httpguard.Problem
	if got.StatusCode != status || json.Unmarshal([]byte(got.body), &p) != nil || p.Status != status || p.Code != string(c) ||
		got.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(p.Detail, text) {
		r.Errorf("%s: %d %v %s, want %d %s with %q", what, got.StatusCode, got.Header, got.body, status, c, text)
	}
	if again := got.Header.Get("Retry-After"); (again != "") != (status == http.StatusServiceUnavailable) {
		r.Errorf("%s: Retry-After %q with %d", what, again, status)
	}
}

func (r *rig) wantPublished(what string, got reply) {
	r.Helper()
	if got.StatusCode != http.StatusNoContent || got.body != "" {
		r.Errorf("%s: %d %s", what, got.StatusCode, got.body)
	}
}

func (r *rig) metric(name string, labels ...string) float64 {
	r.Helper()
	return brokertest.Metric(r, r.registry, name, labels...)
}

func TestPublished(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	got := r.post("/publish/default/orders.created", "\x00body\xff", "Content-Type", "application/json", "Content-Encoding", "gzip",
		"Amqp-Message-Id", "m%251", "Amqp-Correlation-Id", "c", "Amqp-Reply-To", "r", "Amqp-Type", "t", "Amqp-App-Id", "a", "Amqp-Priority", "7",
		"Amqp-Expiration", "60000", "Amqp-Timestamp", "2026-07-01T14:00:00.5+02:00", "Amqp-Header-Tenant-Id", "%20a%0D%0Ab", "Amqp-Header-Empty", "")
	r.wantPublished("a message", got)
	d := r.get()
	want := amqp.Table{"tenant-id": " a\r\nb", "empty": ""}
	if string(d.Body) != "\x00body\xff" || d.ContentType != "application/json" || d.ContentEncoding != "gzip" || d.MessageId != "m%1" ||
		d.CorrelationId != "c" || d.ReplyTo != "r" || d.Type != "t" || d.AppId != "a" || d.Priority != 7 || d.Expiration != "60000" ||
		!d.Timestamp.Equal(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)) || d.DeliveryMode != amqp.Persistent ||
		d.RoutingKey != "orders.created" || d.Exchange != r.exchange || fmt.Sprint(r.own(&d)) != fmt.Sprint(want) ||
		got.Header.Get("Amqp-Message-Id") != "m%251" {
		t.Errorf("%+v", d)
	}
	for path, key := range map[string]string{
		"/publish/default/": "", "/publish/default/a/b//c/": "a/b//c/", "/publish/default/../x/./y": "../x/./y", "/publish/default/a%2Fb%20c%25": "a/b c%",
		"/publish/default/%3F%23": "?#", "/publish/default/a+b:c@d": "a+b:c@d", "/publish/default//": "/", "/publish/default/%C3%BC": "ü",
		"/publish/default/" + strings.Repeat("k", 255): strings.Repeat("k", 255),
	} {
		got := r.post(path, "")
		r.wantPublished(path, got)
		if d := r.get(); d.RoutingKey != key || len(d.Body) != 0 || len(r.own(&d)) != 0 || !newUUID.MatchString(d.MessageId) ||
			got.Header.Get("Amqp-Message-Id") != d.MessageId || d.ContentType != "" {
			t.Errorf("%s: %+v", path, d)
		}
	}
	r.wantPublished("the default exchange", r.post("/publish/direct/"+r.queue, "x"))
	if d := r.get(); d.Exchange != "" || d.RoutingKey != r.queue {
		t.Errorf("%+v", d)
	}
	if n := r.metric("sidecar_publish_requests_total", "exchange", "default", "result", "published"); n != 10 {
		t.Errorf("counted %v", n)
	}
	if n := r.metric("sidecar_publish_confirm_duration_seconds", "kind", "publish"); n != 11 {
		t.Errorf("confirms: %v", n)
	}
	if n := r.metric("sidecar_publish_duration_seconds", "exchange", "default"); n != 10 {
		t.Errorf("durations: %v", n)
	}
}

// Bodies of unknown length, of the largest size, and one byte more.
func TestBodies(t *testing.T) {
	t.Parallel()
	const limit = 200_000
	r := start(t, "", func(o *Options) { o.MaxBody = limit })
	for _, size := range []int{1, 511, 512, 64 << 10, 64<<10 + 1, limit - 1, limit} {
		body := strings.Repeat("b", size)
		for what, reader := range map[string]io.Reader{"known": strings.NewReader(body), "chunked": io.MultiReader(strings.NewReader(body))} {
			r.wantPublished(fmt.Sprint(what, size), r.do(http.MethodPost, "/publish/default/k", reader))
			if d := r.get(); string(d.Body) != body {
				t.Errorf("%s %d: %d bytes", what, size, len(d.Body))
			}
		}
	}
	for what, reader := range map[string]io.Reader{"known": strings.NewReader(strings.Repeat("b", limit+1)), "chunked": io.MultiReader(strings.NewReader(strings.Repeat("b", limit+1)))} {
		got := r.do(http.MethodPost, "/publish/default/k", reader)
		r.want(what, got, http.StatusRequestEntityTooLarge, tooLarge, "SIDECAR_PUBLISH_MAX_BODY")
	}
	r.wantPublished("afterwards", r.post("/publish/default/k", "x"))
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	long := strings.Repeat("x", 256)
	for _, c := range []struct{ name, value, text string }{
		{"Amqp-Nonsense", "x", "Amqp-Nonsense is not a property"},
		{"Amqp-Priority", "256", "Amqp-Priority"}, {"Amqp-Priority", "-1", "Amqp-Priority"}, {"Amqp-Priority", "high", "Amqp-Priority"},
		{"Amqp-Expiration", "5s", "Amqp-Expiration"}, {"Amqp-Expiration", "-1", "Amqp-Expiration"}, {"Amqp-Expiration", "0", "from 1 to"},
		{"Amqp-Reply-To", "amq.rabbitmq.reply-to", "reply-to"}, {"Amqp-Expiration", "4294967296", "Amqp-Expiration"},
		{"Amqp-Timestamp", "yesterday", "Amqp-Timestamp"}, {"Amqp-Timestamp", "1782907200", "Amqp-Timestamp"}, {"Amqp-Timestamp", "0001-01-01T00:00:00Z", "AMQP cannot carry"}, {"Amqp-Timestamp", "0001-01-01T01:00:00.5+01:00", "AMQP cannot carry"},
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
	r.want("two ids", r.post("/publish/default/k", "", "Idempotency-Key", "a", "Amqp-Message-Id", "b"), http.StatusBadRequest, invalid, "differ")
	r.want("a query", r.post("/publish/default/k?x", ""), http.StatusBadRequest, invalid, "%3F")
	r.want("an empty query", r.post("/publish/default/k?", ""), http.StatusBadRequest, invalid, "%3F")
	r.want("no key", r.post("/publish/default", ""), http.StatusBadRequest, invalid, "/publish/{exchange}/{routing key}")
	r.want("a long key", r.post("/publish/default/"+long, ""), http.StatusBadRequest, invalid, "routing key has 256 bytes")
	// None of this has reached the channel: the next message needs no other one.
	r.wantPublished("afterwards", r.post("/publish/default/k", "last"))
	if d := r.get(); string(d.Body) != "last" || len(r.server.inflight) != 0 {
		t.Errorf("%+v", d)
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
		"none":                {nil, amqp.Table{}},
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

func TestMessageIDs(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 100 {
		ids := newFirstID()
		for _, i := range []int{0, 1, 255, 256, maxItems} {
			id := ids.at(i)
			if !newUUID.MatchString(id) || seen[id] || id != ids.at(i) {
				t.Errorf("%d: %s", i, id)
			}
			seen[id] = true
		}
	}
	var last firstID
	for i := range last {
		last[i] = 0xff
	}
	if a, b := last.at(0), last.at(1); a != "ffffffff-ffff-ffff-ffff-ffffffffffff" || b != "ffffffff-ffff-ffff-ffff-ffff00000000" {
		t.Errorf("%s %s", a, b)
	}
	before := newFirstID().at(0)
	time.Sleep(2 * time.Millisecond)
	if after := newFirstID().at(0); after <= before {
		t.Errorf("%s is after %s", before, after)
	}
}

// TestTheAnswerNamesTheMessage: whatever the answer is once the message has been read, it has the id, as it was written
// but for the bytes that a terminal may obey.
func TestTheAnswerNamesTheMessage(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	r.server.o.Exchanges["gone"] = r.exchange + ".missing"
	r.server.lanes[r.exchange+".missing"] = r.server.o.Publisher.NewLane(r.exchange + ".missing")
	for _, path := range []string{"/publish/default/k", "/publish/gone/k"} {
		for name, headers := range map[string][]string{
			"a%20key": {"Idempotency-Key", "a%20key"}, "id/1%0A": {"Amqp-Message-Id", "id/1%0A"},
			"%C3%BC%9B%C2%9B\\ 25%25%09x": {"Idempotency-Key", "ü\x9b\u009b\\ 25%25\tx"},
			"both":                        {"Amqp-Message-Id", "both", "Idempotency-Key", "both"}, "empty": {"Amqp-Message-Id", "", "Idempotency-Key", "empty"},
		} {
			if got := r.post(path, "", headers...); got.Header.Get("Amqp-Message-Id") != name {
				t.Errorf("%s %s: %d %v", path, name, got.StatusCode, got.Header)
			}
		}
		if got := r.post(path, "", "Amqp-Message-Id", ""); !newUUID.MatchString(got.Header.Get("Amqp-Message-Id")) {
			t.Errorf("%s: %d %v", path, got.StatusCode, got.Header)
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

// TestUnroutable: no queue, no exchange, and both good again when they are there.
func TestUnroutable(t *testing.T) {
	t.Parallel()
	missing := ""
	r := start(t, "", func(o *Options) {
		missing = o.Exchanges["default"] + ".missing"
		o.Exchanges["missing"] = missing
	})
	nowhere := brokertest.Name(t, "nowhere")
	r.want("no queue", r.post("/publish/direct/"+nowhere, "x"), http.StatusNotFound, unroutable, "NO_ROUTE")
	for range 3 {
		r.want("no exchange", r.post("/publish/missing/k", "x"), http.StatusNotFound, unroutable, "no exchange '"+missing+"'")
	}
	must.Do(t, r.ch.ExchangeDeclare(missing, "fanout", false, true, false, false, nil))
	must.Do(t, r.ch.QueueBind(r.queue, "", missing, false, nil))
	r.wantPublished("an exchange that is there now", r.post("/publish/missing/k", "x"))
	r.wantPublished("the default exchange", r.post("/publish/direct/"+r.queue, "x"))
	if n := r.metric("sidecar_publish_requests_total", "exchange", "missing", "result", "unroutable"); n != 3 {
		t.Errorf("counted %v", n)
	}
	if !strings.Contains(r.log.String(), `"msg":"message not published"`) {
		t.Error("nothing was logged")
	}
}

// TestNacked: a queue that is full and says so.
func TestNacked(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	full := brokertest.Queue(t, r.url, brokertest.Name(t, "full"), amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"})
	r.wantPublished("the first", r.post("/publish/direct/"+full, "x"))
	for range 3 {
		r.want("one too many", r.post("/publish/direct/"+full, "x"), http.StatusServiceUnavailable, nacked, "may be full")
	}
	// Of two queues the other one has it each time, which the answer does not deny.
	r.bind(full, "both")
	for range 2 {
		r.want("one of two", r.post("/publish/default/both", "x"), http.StatusServiceUnavailable, nacked, "other queues of the exchange may have it")
		if d := r.get(); d.RoutingKey != "both" {
			t.Errorf("%+v", d)
		}
	}
	r.wantPublished("another queue", r.post("/publish/direct/"+r.queue, "x"))
}

// TestTooLargeForTheBroker: one that is too large is refused, and costs no other message anything.
func TestTooLargeForTheBroker(t *testing.T) {
	t.Parallel()
	brokertest.OwnNode(t).MaxSize(100_000)
	r := start(t, "", nil)
	stop, innocents := make(chan struct{}), sync.WaitGroup{}
	for range 8 {
		innocents.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					r.wantPublished("a small one", r.post("/publish/default/k", "x"))
				}
			}
		})
	}
	for range 5 {
		r.want("too large", r.post("/publish/default/k", strings.Repeat("x", 100_001)), http.StatusRequestEntityTooLarge, tooLarge, "size")
		r.wantPublished("the largest", r.post("/publish/default/k", strings.Repeat("x", 100_000)))
	}
	close(stop)
	innocents.Wait()
}

func TestDisconnected(t *testing.T) {
	t.Parallel()
	proxy := brokertest.NewProxy(t, brokertest.URL(t))
	r := start(t, proxy.URL(t, brokertest.URL(t)), nil)
	r.wantPublished("before", r.post("/publish/default/k", "x"))
	proxy.Refuse()
	proxy.Cut()
	brokertest.Eventually(t, time.Minute, "disconnected", func() bool { return !r.server.o.Publisher.Connected() })
	r.want("away", r.post("/publish/default/k", "x"), http.StatusServiceUnavailable, disconnected, "Nothing was sent")
	r.want("readiness", r.do(http.MethodGet, "/readyz", nil), http.StatusServiceUnavailable, disconnected, "")
	proxy.Restore(t)
	brokertest.Eventually(t, 60*time.Second, "connected again", r.server.o.Publisher.Connected)
	r.wantPublished("after", r.post("/publish/default/k", "x"))
	if got := r.do(http.MethodGet, "/readyz", nil); got.StatusCode != http.StatusOK {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
}

// TestUnknown: a message and the items of a batch that were sent and got no answer are a 504, and the sidecar sends
// none of them again.
func TestUnknown(t *testing.T) {
	t.Parallel()
	proxy := brokertest.NewProxy(t, brokertest.URL(t))
	r := start(t, proxy.URL(t, brokertest.URL(t)), func(o *Options) { o.Timeout = 2 * time.Second })
	// On a busy machine a confirm may take longer than the short timeout of this test.
	brokertest.Eventually(t, time.Minute, "a message published before", func() bool {
		return r.post("/publish/default/k", "before").StatusCode == http.StatusNoContent
	})
	proxy.Stall(brokertest.Down)
	batch := make(chan reply)
	go func() {
		batch <- r.post("/publish:batch", `{"routing_key":"k","body":"item"}`+"\n"+`{"exchange":"other","routing_key":"k"}`+"\n"+`{"routing_key":"k","body":"item"}`, "Content-Type", "application/jsonl")
	}()
	got := r.post("/publish/default/k", "one", "Idempotency-Key", "k-1")
	r.want("no answer", got, http.StatusGatewayTimeout, unknown, "may have been published. Send it again with the same Idempotency-Key")
	for i, one := range r.results(<-batch) {
		if i == 1 && one.Code != forbidden || i != 1 && (one.Status != http.StatusGatewayTimeout || one.Code != unknown || !strings.Contains(one.Detail, "may have been published")) {
			t.Errorf("item %d: %+v", i, one)
		}
	}
	proxy.Cut()
	proxy.Restore(t)
	brokertest.Eventually(t, 60*time.Second, "published again", func() bool {
		return r.post("/publish/direct/"+r.queue, "after").StatusCode == http.StatusNoContent
	})
	sent := map[string]int{}
	for d := ""; d != "after"; sent[d]++ {
		d = string(r.get().Body)
	}
	delete(sent, "before")
	if want := map[string]int{"one": 1, "item": 2, "after": 1}; !maps.Equal(sent, want) {
		t.Errorf("the broker got %v, want %v", sent, want)
	}
}

// TestAlarm: an alarm is an answer at once, also for a connection that has not been notified of it, and nothing is
// published by what was refused.
func TestAlarm(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	for name, warm := range map[string]bool{"a connection that has published": true, "a fresh one": false} {
		t.Run(name, func(t *testing.T) {
			r := start(t, "", nil)
			if warm {
				r.wantPublished("before", r.post("/publish/default/k", "before"))
				r.get()
			}
			calm := node.Alarm()
			sent := r.post("/publish/default/k", "first") // it notifies the connection; one that has published before may have it unknown
			if warm {
				r.want("the first", sent, http.StatusGatewayTimeout, unknown, "may have been published")
			} else {
				r.want("the first", sent, http.StatusServiceUnavailable, blocked, "alarm")
			}
			for range 20 {
				r.want("in the alarm", r.post("/publish/default/k", "refused"), http.StatusServiceUnavailable, blocked, "Nothing was sent")
			}
			r.want("readiness", r.do(http.MethodGet, "/readyz", nil), http.StatusServiceUnavailable, blocked, "")
			calm()
			brokertest.Eventually(t, time.Minute, "the alarm is over", func() bool {
				return r.post("/publish/default/k", "after").StatusCode == http.StatusNoContent
			})
			if warm {
				if d := r.get(); string(d.Body) != "first" {
					t.Errorf("%s", d.Body)
				}
			}
			if d := r.get(); string(d.Body) != "after" {
				t.Errorf("%s was published", d.Body)
			}
			if n := r.metric("sidecar_amqp_reconnects_total"); n != 0 {
				t.Errorf("%v reconnects", n)
			}
		})
	}
}

// TestBusy: more than there is room for, in messages and in bytes, is refused at once.
func TestBusy(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.MaxInflight = 2 })
	for range 2 {
		r.server.inflight.Enter()
	}
	r.want("too many messages", r.post("/publish/default/k", "x"), http.StatusServiceUnavailable, busy, "Too many")
	r.server.inflight.Leave()
	r.wantPublished("one of two", r.post("/publish/default/k", "x"))
	c := dial(t, r.addr)
	fmt.Fprintf(c, "POST /publish/default/k HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\n\r\nx", r.addr)
	brokertest.Eventually(t, time.Minute, "the body is being read", func() bool { return r.memory.Held() > 0 })
	r.server.inflight.Enter()
	r.want("too many when the body has arrived", r.roundTrip(c, "x"), http.StatusServiceUnavailable, busy, "Too many")
	for range 2 {
		r.server.inflight.Leave()
	}
	r.wantPublished("afterwards", r.post("/publish/default/k", "x"))
}

// A body that does not come in time.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.Timeout = 500 * time.Millisecond })
	c := dial(t, r.addr)
	fmt.Fprintf(c, "POST /publish/default/k HTTP/1.1\r\nHost: %s\r\nContent-Length: 10\r\n\r\nfive", r.addr)
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	b, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 400 ") || !strings.Contains(string(b), "too slowly") {
		t.Errorf("%s %v", b, err)
	}
}

// A client that goes away does not change the outcome of its message, and does not close the connection of others.
func TestClientGone(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	for range 20 {
		c := dial(t, r.addr)
		fmt.Fprintf(c, "POST /publish/default/k HTTP/1.1\r\nHost: %s\r\nContent-Length: 1\r\n\r\nx", r.addr)
		c.Close()
	}
	brokertest.Eventually(t, time.Minute, "nothing under way", func() bool { return r.metric("sidecar_publish_inflight") == 0 })
	r.wantPublished("another one", r.post("/publish/default/k", "x"))
	if n := r.metric("sidecar_amqp_reconnects_total"); n != 0 {
		t.Errorf("%v reconnects", n)
	}
}

// TestShutdown: what is under way is finished, and nothing more is taken.
func TestShutdown(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	c := dial(t, r.addr)
	fmt.Fprintf(c, "POST /publish/default/k HTTP/1.1\r\nHost: %s\r\nContent-Length: 4\r\n\r\n", r.addr)
	brokertest.Eventually(t, time.Minute, "the request is read", func() bool { return r.memory.Held() > 0 })
	ended := make(chan struct{})
	go func() { defer close(ended); r.stop() }()
	brokertest.Eventually(t, time.Minute, "it stops", func() bool { return r.server.stopping.Load() })
	fmt.Fprint(c, "last")
	b, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 204 ") {
		t.Errorf("%s %v", b, err)
	}
	<-ended
	if d := r.get(); string(d.Body) != "last" {
		t.Errorf("%s", d.Body)
	}
	if f := r.server.ready(); f != errStopping || r.server.Problem() != "stopping" {
		t.Errorf("%v", f)
	}
}

// A request that does not end is cut off with the time.
func TestShutdownCutsOff(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	c := dial(t, r.addr)
	fmt.Fprintf(c, "POST /publish/default/k HTTP/1.1\r\nHost: %s\r\nContent-Length: 4\r\n\r\n", r.addr)
	brokertest.Eventually(t, time.Minute, "the request is read", func() bool { return r.memory.Held() > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r.server.Shutdown(ctx)
	if b, _ := io.ReadAll(c); len(b) != 0 && !strings.HasPrefix(string(b), "HTTP/1.1 400") {
		t.Errorf("%s", b)
	}
	if !strings.Contains(r.log.String(), "publish requests cut off") {
		t.Error("nothing was logged")
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]code{
		fmt.Errorf("%w: %w", broker.ErrUnknown, broker.ErrBlocked): unknown, &broker.RefusedError{Code: 406, Text: "PRECONDITION_FAILED - other"}: nacked,
		&broker.RefusedError{Code: 403, Text: "ACCESS_REFUSED"}: forbidden, &broker.RefusedError{Code: 404, Text: "NOT_FOUND"}: unroutable,
		broker.ErrBusy: busy, broker.ErrInvalid: invalid, broker.ErrTooLarge: invalid, io.EOF: unknown,
	} {
		if f := failureOf(err); f.code != want || f.detail == "" {
			t.Errorf("%v: %+v", err, f)
		}
	}
}
