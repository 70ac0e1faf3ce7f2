package publish

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// results reads the answer of a batch.
func (r *rig) results(got reply) []result {
	r.Helper()
	if got.StatusCode != http.StatusOK || got.Header.Get("Content-Type") != "application/jsonl" {
		r.Fatalf("%d %v %s", got.StatusCode, got.Header, got.body)
	}
	var list []result
	for line := range strings.Lines(got.body) {
		var one result
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			r.Fatalf("%s: %v", line, err)
		}
		if one.Index != len(list) {
			r.Errorf("line %d has index %d", len(list), one.Index)
		}
		list = append(list, one)
	}
	return list
}

func (r *rig) batch(lines ...string) []result {
	r.Helper()
	return r.results(r.post("/publish:batch", strings.Join(lines, "\n"), "Content-Type", "application/jsonl"))
}

func TestBatch(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	got := r.batch(
		`{"routing_key":"a","body":"text ü","message_id":"1","content_type":"text/plain","content_encoding":"x","correlation_id":"c","reply_to":"r","type":"t","app_id":"a","priority":3,"expiration":60000,"timestamp":"2026-07-01T12:00:00Z"}`,
		``, `  `,
		`{"exchange":"default","routing_key":"b","body":{"n": 1, "s":"ü"},"expiration":"70000","headers":{"Exact_Name":"v","int":9007199254740993,"float":1.5,"yes":true,"void":null,"list":[1,"x"],"table":{"k":-1},"x-death":"forged","CC":["elsewhere"]}}`,
		`{"routing_key":"c","body_base64":"AP8="}`,
		`{"routing_key":"d","body":null,"content_type":"x/y"}`,
		`{"routing_key":"e","body":[]}`,
	)
	for i, one := range got {
		if one.Status != http.StatusNoContent || one.Code != "" || one.Detail != "" {
			t.Errorf("%d: %+v", i, one)
		}
	}
	if len(got) != 5 {
		t.Fatalf("%d results", len(got))
	}
	d := r.get()
	if d.RoutingKey != "a" || string(d.Body) != "text ü" || d.MessageId != "1" || d.ContentType != "text/plain" || d.ContentEncoding != "x" || d.CorrelationId != "c" ||
		d.ReplyTo != "r" || d.Type != "t" || d.AppId != "a" || d.Priority != 3 || d.Expiration != "60000" || d.Timestamp.Unix() != 1782907200 || len(r.own(&d)) != 0 {
		t.Errorf("%+v", d)
	}
	d = r.get()
	want := amqp.Table{"Exact_Name": "v", "int": int64(9007199254740993), "float": 1.5, "yes": true, "void": nil, "list": []any{int64(1), "x"}, "table": amqp.Table{"k": int64(-1)}}
	if string(d.Body) != `{"n": 1, "s":"ü"}` || d.ContentType != "application/json" || d.Expiration != "70000" || !reflect.DeepEqual(r.own(&d), want) ||
		!newUUID.MatchString(d.MessageId) || got[0].MessageID != "" || got[1].MessageID != d.MessageId {
		t.Errorf("%+v", d)
	}
	for i, body := range []string{"\x00\xff", "null", "[]"} {
		if d = r.get(); string(d.Body) != body || d.MessageId != got[2+i].MessageID || d.MessageId <= got[1+i].MessageID {
			t.Errorf("%q, want %q; %+v", d.Body, body, got)
		}
	}
	r.batch(`{"exchange":"direct","routing_key":"` + r.queue + `","body":"to the queue","expiration":null,"headers":null}` + "\r")
	d = r.get()
	if d.ContentType != "" || d.Exchange != "" {
		t.Errorf("%+v", d)
	}
	if n := r.metric("sidecar_publish_requests_total", "exchange", "default", "result", "published"); n != 5 {
		t.Errorf("counted %v", n)
	}
}

// Each item has its own answer, and one that is refused costs the others nothing.
func TestBatchItems(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.MaxBody, o.RoutingKeys = 100, []string{"ok", "nowhere*"} })
	nowhere := "nowhere" + brokertest.Name(t, "q")
	for i, c := range []struct {
		line, text string
		status     int
		code       code
	}{
		{`{"routing_key":"ok","body":"first"}`, "", 204, ""},
		{`{"exchange":"` + r.exchange + `","routing_key":"ok","user_id":["not","read"],"delivery_mode":"1","delivery":{"attempt":2}}`, "", 204, ""},
		{`{"exchange":{"base64":"` + base64.StdEncoding.EncodeToString([]byte(r.exchange)) + `"},"routing_key":"ok"}`, "", 204, ""},
		{`{"exchange":"","routing_key":"` + nowhere + `"}`, "NO_ROUTE", 404, unroutable},
		{`{"exchange":"amq.topic","routing_key":"ok"}`, "no exchange alias", 403, forbidden},
		{`{"routing_key":"ok","headers":{"n":300},"header_types":{"n":"int8"}}`, `headers cannot be published: header "n": value of type "int8"`, 400, invalid},
		{`{"exchange":"direct","routing_key":"` + nowhere + `","body":""}`, "NO_ROUTE", 404, unroutable},
		{`{"exchange":"other","routing_key":"ok"}`, "no exchange alias", 403, forbidden},
		{`{"routing_key":"no"}`, "SIDECAR_PUBLISH_ROUTING_KEYS", 403, forbidden},
		{`{"routing_key":"ok","body":"` + strings.Repeat("x", 101) + `"}`, "SIDECAR_PUBLISH_MAX_BODY", 413, tooLarge},
		{`{"routing_key":"ok","body":"` + strings.Repeat("x", 300_000) + `"}`, "SIDECAR_PUBLISH_MAX_BODY", 413, tooLarge},
		{`{"routing_key":"ok","body":"` + strings.Repeat("x", 100) + `"}`, "", 204, ""},
		{`nonsense`, "not a JSON object", 400, invalid},
		{`[]`, "not a JSON object", 400, invalid},
		{`null`, "not a JSON object", 400, invalid},
		{`"routing_key"`, "not a JSON object", 400, invalid},
		{`{}`, "no routing_key", 400, invalid},
		{`{"body":"x"}`, "no routing_key", 400, invalid},
		{`{"routing_key":null,"body":"x"}`, "no routing_key", 400, invalid},
		{`{"routing_key":7}`, "routing_key cannot be read", 400, invalid},
		{`{"routing_key":"ok"`, "not a JSON object", 400, invalid},
		{`{"routing_key":"ok",7:1}`, "not a JSON object", 400, invalid},
		{`{"routing_key":"ok","Body":"x"}`, `no field "Body"`, 400, invalid},
		{`{"routing_key":"elsewhere","Routing_Key":"ok"}`, `no field "Routing_Key"`, 400, invalid},
		{`{"routing_key":"elsewhere","routing_key":"ok"}`, "routing_key is there twice", 400, invalid},
		{`{"routing_key":"ok","routing\u005fkey":"ok"}`, "routing_key is there twice", 400, invalid},
		{`{"routing_key":"ok","headers":{"a":1,"a":1}}`, `header "a": the name "a" is there twice`, 400, invalid},
		{`{"routing_key":"ok","headers":{"a":[{"b":1,"b":1}]}}`, `header "a": the name "b" is there twice`, 400, invalid},
		{`{"routing_key":"ok","body":"lone \ud800"}`, "body holds half of a surrogate pair", 400, invalid},
		{`{"routing_key":"ok","body":"\ud800\u0041"}`, "half of a surrogate pair", 400, invalid},
		{`{"routing_key":"ok","body":"\ud800\ud800\udc00"}`, "half of a surrogate pair", 400, invalid},
		{`{"routing_key":"ok","body":"\udc00"}`, "half of a surrogate pair", 400, invalid},
		{`{"routing_key":"ok","message_id":"\uDFFF"}`, "message_id holds half", 400, invalid},
		{`{"routing_key":"ok","headers":{"\udc00":1}}`, "headers holds half", 400, invalid},
		{`{"routing_key":"ok","body":"\ud83d\ude00 \\ud800 \n\u00e9"}`, "", 204, ""},
		{`{"routing_key":"ok","body":{"as it is":"\ud800"}}`, "", 204, ""},
		{`{"routing_key":"ok","timestamp":"0001-01-01T00:00:00Z"}`, "AMQP cannot carry", 400, invalid},
		{`{"routing_key":"ok"} {}`, "after top-level value", 400, invalid},
		{`{"routing_key":"ok","bodi":""}`, "bodi", 400, invalid},
		{"{\"routing_key\":\"ok\xff\"}", "UTF-8", 400, invalid},
		{`{"routing_key":"ok","body":"","body_base64":""}`, "one of them", 400, invalid},
		{`{"routing_key":"ok","body_base64":"!"}`, "base64", 400, invalid},
		{`{"routing_key":"` + strings.Repeat("k", 256) + `"}`, "256 bytes", 400, invalid},
		{`{"routing_key":"ok","message_id":"` + strings.Repeat("k", 256) + `"}`, "message_id has 256 bytes", 400, invalid},
		{`{"routing_key":"ok","content_type":"` + strings.Repeat("k", 256) + `"}`, "content_type has 256 bytes", 400, invalid},
		{`{"routing_key":"ok","priority":256}`, "priority", 400, invalid},
		{`{"routing_key":"ok","expiration":-1}`, "expiration", 400, invalid},
		{`{"routing_key":"ok","expiration":0}`, "expiration", 400, invalid},
		{`{"routing_key":"ok","expiration":"0"}`, "expiration", 400, invalid},
		{`{"routing_key":"ok","timestamp":"now"}`, "timestamp", 400, invalid},
		{`{"routing_key":"ok","headers":[]}`, "headers cannot be published: not a JSON object", 400, invalid},
		{`{"routing_key":"ok","headers":{"n":1e999}}`, `header "n": the number 1e999 is too large`, 400, invalid},
		{`{"routing_key":"ok","headers":{"n":[{"a":1e999}]}}`, `header "n": the number 1e999 is too large`, 400, invalid},
		{`{"routing_key":"ok","headers":{"n":` + strings.Repeat("[", 33) + strings.Repeat("]", 33) + `}}`, "nested", 400, invalid},
		{`{"routing_key":"ok","headers":{"` + strings.Repeat("k", 256) + `":1}}`, "256 bytes", 400, invalid},
		{`{"routing_key":"ok","headers":{"large":"` + strings.Repeat("k", 140_000) + `"}}`, `header "large": with everything before it too large for a frame of 131072 bytes`, 400, invalid},
		{`{"routing_key":"ok","body":"last"}`, "", 204, ""},
	} {
		got := r.batch(`{"routing_key":"ok","body":"before"}`, c.line, `{"routing_key":"ok","body":"after"}`)
		if len(got) != 3 || got[0].Status != 204 || got[2].Status != 204 || got[1].Status != c.status || got[1].Code != c.code || !strings.Contains(got[1].Detail, c.text) {
			t.Errorf("%d %.60s: %+v", i, c.line, got)
		}
	}
	brokertest.Eventually(t, time.Minute, "nothing is counted any more", func() bool { return r.memory.Held() == 0 && len(r.server.inflight) == 0 })
}

// TestBatchDirectReplyTo: the broker closes the channel over a reply-to of direct reply-to, so it is refused before it
// is sent and costs no other message of its channel anything.
func TestBatchDirectReplyTo(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	lines := make([]string, 64)
	for i := range lines {
		lines[i] = `{"routing_key":"k","body":"x","reply_to":"amq.rabbitmq.reply-to.not"}`
	}
	const refused = 20
	lines[refused] = `{"routing_key":"k","body":"x","reply_to":"amq.rabbitmq.reply-to"}`
	for i, one := range r.batch(lines...) {
		if i == refused && (one.Status != http.StatusBadRequest || one.Code != invalid || !strings.Contains(one.Detail, "reply-to")) ||
			i != refused && one.Status != http.StatusNoContent {
			t.Errorf("%d: %+v", i, one)
		}
	}
}

// A large batch arrives in its order, and no more of it is held than a window.
func TestLargeBatch(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.MaxInflight = 50 })
	const n = 400
	in, out := io.Pipe()
	go func() {
		for i := range n {
			fmt.Fprintf(out, "{\"routing_key\":\"k\",\"body\":{\"n\":%d}}\n", i)
		}
		_ = out.Close()
	}()
	got := r.results(r.do(http.MethodPost, "/publish:batch", in, "Content-Type", "application/x-ndjson; charset=utf-8"))
	if len(got) != n {
		t.Fatalf("%d results", len(got))
	}
	for i, one := range got {
		if one.Status != http.StatusNoContent {
			t.Fatalf("%d: %+v", i, one)
		}
	}
	deliveries := must.Get(r.ch.Consume(r.queue, "", true, false, false, false, nil))(t)
	for i := range n {
		if d := <-deliveries; string(d.Body) != fmt.Sprintf(`{"n":%d}`, i) {
			t.Fatalf("%d is %s", i, d.Body)
		}
	}
}

// The end of a batch in the middle is reported, and what was read before it was published.
func TestBatchCutShort(t *testing.T) {
	t.Parallel()
	// It bounds the confirm of the first item as well, for which a busy broker may take a while.
	r := start(t, "", func(o *Options) { o.Timeout = 4 * time.Second })
	for name, c := range map[string]struct{ contentType, body string }{
		"a line": {"application/jsonl", `{"routing_key":"k","body":"whole"}` + "\n" + `{"routing_key":"k","body":"half"}`},
		"a part": {"multipart/mixed; boundary=b", "--b\r\nAmqp-Routing-Key: k\r\n\r\nwhole\r\n--b\r\nAmqp-Routing-Key: k\r\n\r\nhalf"},
	} {
		conn := dial(t, r.addr)
		fmt.Fprintf(conn, "POST /publish:batch HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", r.addr, c.contentType, len(c.body)+100, c.body)
		if name == "a part" { // the other one comes too slowly
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		b, err := io.ReadAll(conn)
		if err != nil || !strings.Contains(string(b), `{"index":0,"status":204,"message_id":"`) || !strings.Contains(string(b), `{"index":1,"status":400,"code":"invalid","detail":"The batch ended early`) {
			t.Errorf("%s: %s %v", name, b, err)
		}
		if d := r.get(); string(d.Body) != "whole" {
			t.Errorf("%s", d.Body)
		}
	}
	truncated := r.results(r.post("/publish:batch", "--b\r\n\r\nwhole\r\n--b\r\n", "Content-Type", "multipart/mixed; boundary=b"))
	if len(truncated) != 2 || truncated[0].Status != 204 || truncated[1].Status != 400 {
		t.Errorf("%+v", truncated)
	}
	r.get()
	if n := brokertest.Ready(t, r.url, r.queue); n != 0 {
		t.Errorf("%d messages more were published", n)
	}
}

func TestMultipart(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	parts := []string{
		"Amqp-Exchange: default\r\nAmqp-Routing-Key: a%2520b\r\nContent-Type: text/plain\r\nAmqp-Message-Id: 1\r\nAmqp-Header-Tenant: t\r\nContent-Transfer-Encoding: binary\r\n\r\n\x00\xff\r\nline=\r\n",
		"\r\nno headers",
		"Amqp-Exchange: default\r\nIdempotency-Key: 3\r\n\r\n",
		"Amqp-Exchange: other\r\n\r\nx", "Amqp-Priority: x\r\n\r\nx", "Amqp-Exchange: %\r\n\r\nx", "Amqp-Routing-Key: %\r\n\r\nx", "Content-Transfer-Encoding: base64\r\n\r\nx",
		"\r\n" + strings.Repeat("long", 10_000),
		"\r\nlast",
	}
	body := "--b\r\n" + strings.Join(parts, "\r\n--b\r\n") + "\r\n--b--\r\n"
	got := r.results(r.post("/publish:batch", body, "Content-Type", "multipart/mixed; boundary=b"))
	var statuses []int
	for _, one := range got {
		statuses = append(statuses, one.Status)
	}
	if fmt.Sprint(statuses) != "[204 204 204 403 400 400 400 400 204 204]" || got[2].MessageID != "" || got[3].MessageID != "" {
		t.Errorf("%+v", got)
	}
	d := r.get()
	if d.RoutingKey != "a%20b" || string(d.Body) != "\x00\xff\r\nline=\r\n" || d.ContentType != "text/plain" || d.MessageId != "1" || d.Headers["tenant"] != "t" {
		t.Errorf("%+v", d)
	}
	for _, want := range []string{"no headers", "", strings.Repeat("long", 10_000), "last"} {
		if d = r.get(); string(d.Body) != want {
			t.Errorf("%.20q, want %.20q", d.Body, want)
		}
	}
}

// A batch with too many items is published as far as it may go, and says where that is.
func TestBatchOfTooMany(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	r.server.maxItems = 2
	got := r.batch(`{"routing_key":"","body":"1"}`, `{"routing_key":"","body":"2"}`, `{"routing_key":"","body":"3"}`, `{"routing_key":"","body":"4"}`)
	if len(got) != 3 || got[1].Status != 204 || got[2].Status != http.StatusRequestEntityTooLarge || got[2].Code != tooLarge || !strings.Contains(got[2].Detail, "at most 2 messages") {
		t.Errorf("%+v", got)
	}
	brokertest.WaitReady(t, r.url, r.queue, 2)
}

// The trace of an item wins over that of its batch.
func TestBatchTrace(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	const parent, other = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-01"
	r.results(r.post("/publish:batch", `{"routing_key":"","body":""}`+"\n"+`{"routing_key":"","body":"","headers":{"traceparent":"`+other+`"}}`, "Content-Type", "application/json-lines", "Traceparent", parent))
	for _, want := range []string{parent, other} {
		if d := r.get(); d.Headers["traceparent"] != want {
			t.Errorf("%v", d.Headers)
		}
	}
}

func TestBatchRefused(t *testing.T) {
	t.Parallel()
	proxy := brokertest.NewProxy(t, brokertest.URL(t))
	r := start(t, proxy.URL(t, brokertest.URL(t)), nil)
	for _, contentType := range []string{"", "application/json", "multipart/mixed", "multipart/form-data; boundary=b", ";"} {
		r.want(contentType, r.post("/publish:batch", "{}", "Content-Type", contentType), http.StatusUnsupportedMediaType, invalid, "application/jsonl")
	}
	for range maxBatches {
		r.server.batches.Enter()
	}
	r.want("too many", r.post("/publish:batch", "{}", "Content-Type", "application/jsonl"), http.StatusServiceUnavailable, busy, "batches")
	for range maxBatches {
		r.server.batches.Leave()
	}
	r.want("GET", r.do(http.MethodGet, "/publish:batch", nil), http.StatusMethodNotAllowed, badMethod, "")
	proxy.Refuse()
	proxy.Cut()
	brokertest.Eventually(t, time.Minute, "disconnected", func() bool { return !r.server.o.Publisher.Connected() })
	r.want("away", r.post("/publish:batch", "{}", "Content-Type", "application/jsonl"), http.StatusServiceUnavailable, disconnected, "")
}

// A batch that stops in the middle: what was under way is known, what was not read is reported.
func TestBatchWhileStopping(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	in, out := io.Pipe()
	answer := make(chan reply)
	go func() {
		answer <- r.do(http.MethodPost, "/publish:batch", in, "Content-Type", "application/jsonl")
	}()
	fmt.Fprintln(out, `{"routing_key":"k","body":"before"}`)
	if d := r.get(); string(d.Body) != "before" {
		t.Errorf("%s", d.Body)
	}
	r.server.stopping.Store(true)
	fmt.Fprintln(out, `{"routing_key":"k","body":"read already"}`)
	fmt.Fprintln(out, `{"routing_key":"k","body":"not read"}`)
	_ = out.Close()
	got := r.results(<-answer)
	if last := got[len(got)-1]; got[0].Status != 204 || last.Code != stopping || last.Status != http.StatusServiceUnavailable || !strings.Contains(last.Detail, "were not read") {
		t.Errorf("%+v", got)
	}
}

// Items that find no room say so, and those behind them are published.
func TestBatchBusy(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.MaxInflight = 1 })
	timeout := r.server.o.Timeout
	r.server.o.Timeout = 100 * time.Millisecond
	r.server.inflight.Enter()
	if got := r.batch(`{"routing_key":"","body":"x"}`); len(got) != 1 || got[0].Code != busy {
		t.Errorf("messages: %+v", got)
	}
	r.server.inflight.Leave()
	// The batch itself finds memory, its item does not.
	rest := r.memory.Limit()/2 - costOfBatch - resultStep*costOfResult - costOfMessage - 4<<10
	must.Do(t, taken(r.memory.Take(rest)))
	if got := r.batch(`{"routing_key":"","body":"x"}`); len(got) != 1 || got[0].Code != busy || !strings.HasSuffix(got[0].Detail, "(SIDECAR_MEMORY). Nothing was sent.") {
		t.Errorf("memory: %+v", got)
	}
	r.server.o.Timeout = timeout
	time.AfterFunc(20*time.Millisecond, func() { r.memory.Give(rest) })
	if got := r.batch(`{"routing_key":"","body":"x"}`); len(got) != 1 || got[0].Status != 204 {
		t.Errorf("memory that is free later: %+v", got)
	}
	must.Do(t, taken(r.memory.Take(r.memory.Limit()/2)))
	r.want("a body of unknown length", r.do(http.MethodPost, "/publish/direct/"+r.queue, io.MultiReader(strings.NewReader("x")), "Idempotency-Key", "k"), http.StatusServiceUnavailable, busy, "SIDECAR_MEMORY")
	r.want("a batch", r.post("/publish:batch", "{}", "Content-Type", "application/jsonl"), http.StatusServiceUnavailable, busy, "SIDECAR_MEMORY")
	r.memory.Give(r.memory.Limit() / 2)
	if len(r.server.batches) != 0 {
		t.Error("a batch that was refused is still counted")
	}
}

func taken(ok bool) error {
	if !ok {
		return errors.New("there was no memory for the test")
	}
	return nil
}

// A code that no item can have is reported as unknown: a client must not take it for a refusal.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, o := range outcomes {
		if got := outcomes[indexOf(o.code)].code; got != o.code {
			t.Errorf("%s becomes %s", o.code, got)
		}
	}
	if outcomes[indexOf(internal)].code != unknown || outcomes[0].code != unknown {
		t.Error("a bug is no refusal, and nothing known is no success")
	}
}

// TestBatchOfFailures: every one of thousands of items that fail says so, while the batch is still being read. To be
// run with the race detector.
func TestBatchOfFailures(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	const n = 2000
	missing := `{"exchange":"direct","routing_key":"` + brokertest.Name(t, "missing") + `","body":""}`
	wrong := `{"exchange":"elsewhere","routing_key":"k","body":""}`
	lines := make([]string, n)
	for i := range lines {
		lines[i] = missing
		if i%3 == 2 {
			lines[i] = wrong
		}
	}
	got := r.batch(lines...)
	if len(got) != n {
		t.Fatalf("%d results", len(got))
	}
	for i, one := range got {
		want := http.StatusNotFound
		if i%3 == 2 {
			want = http.StatusForbidden
		}
		if one.Status != want || one.Detail == "" && i < maxDetails/2 {
			t.Fatalf("%d: %+v", i, one)
		}
	}
	if of := r.metric("sidecar_publish_requests_total", "exchange", "direct", "result", "unroutable"); of != float64(n-n/3) {
		t.Errorf("counted %v", of)
	}
}

// deadlines are those of a connection.
type deadlines struct {
	http.ResponseWriter
	read, write time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error  { d.read = t; return nil }
func (d *deadlines) SetWriteDeadline(t time.Time) error { d.write = t; return nil }

// TestBatchPatience: time is given to each item, and with it to the answer of the batch.
func TestBatchPatience(t *testing.T) {
	t.Parallel()
	d, now := &deadlines{}, time.Now()
	b := &batch{server: &Server{o: Options{Timeout: 8 * time.Second}}, rc: http.NewResponseController(d)}
	for after, from := range map[time.Duration]time.Duration{0: 0, time.Second - 1: 0, time.Second: time.Second} {
		b.patient = time.Time{}
		b.patience(now)
		if b.patience(now.Add(after)); d.read != now.Add(from+9*time.Second) || d.write != now.Add(from+17*time.Second+answerTimeout) {
			t.Errorf("after %v: %v to read, %v to answer", after, d.read.Sub(now), d.write.Sub(now))
		}
	}
}
