package publish

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
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

// batch publishes lines of JSON.
func (r *rig) batch(lines ...string) []result {
	r.Helper()
	return r.results(r.post("/publish:batch", strings.Join(lines, "\n"), "Content-Type", "application/jsonl"))
}

// wantCodes checks the outcome of each message of a batch.
func (r *rig) wantCodes(what string, got []result, want ...code) {
	r.Helper()
	var codes []code
	for i, one := range got {
		c := cmp.Or(one.Code, published)
		if one.Status != outcomes[indexOf(c)].status || (c == published) != (one.Detail == "") {
			r.Errorf("%s: item %d is %+v", what, i, one)
		}
		codes = append(codes, c)
	}
	if !slices.Equal(codes, want) {
		r.Errorf("%s: %+.200v, want %q", what, got, want)
	}
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
		`{"exchange":"direct","routing_key":"`+r.queue+`","body":"to the queue","expiration":null,"headers":null}`+"\r",
	)
	r.wantCodes("all", got, published, published, published, published, published)
	d := r.next("text ü")
	if d.RoutingKey != "a" || d.MessageId != "1" || d.ContentType != "text/plain" || d.ContentEncoding != "x" || d.CorrelationId != "c" ||
		d.ReplyTo != "r" || d.Type != "t" || d.AppId != "a" || d.Priority != 3 || d.Expiration != "60000" || d.Timestamp.Unix() != 1782907200 || len(r.own(&d)) != 0 {
		t.Errorf("%+v", d)
	}
	d = r.next(`{"n": 1, "s":"ü"}`)
	want := amqp.Table{"Exact_Name": "v", "int": int64(9007199254740993), "float": 1.5, "yes": true, "void": nil, "list": []any{int64(1), "x"}, "table": amqp.Table{"k": int64(-1)}}
	if d.ContentType != "application/json" || d.Expiration != "70000" || !reflect.DeepEqual(r.own(&d), want) || !newUUID.MatchString(d.MessageId) || got[0].MessageID != "" {
		t.Errorf("%+v", d)
	}
	last := ""
	for i, one := range []struct{ body, contentType, exchange string }{
		{"\x00\xff", "", r.exchange}, {"null", "x/y", r.exchange}, {"to the queue", "", ""},
	} {
		d := r.next(one.body)
		if d.ContentType != one.contentType || d.Exchange != one.exchange || d.MessageId != got[2+i].MessageID || d.MessageId <= last {
			t.Errorf("%+v; %+v", d, got)
		}
		last = d.MessageId
	}
	if n := r.metric("sidecar_publish_requests_total", "exchange", "default", "result", "published"); n != 4 {
		t.Errorf("counted %v", n)
	}
}

// badLines are lines that are no message, and what is said of them.
var badLines = []struct{ line, says string }{
	{`nonsense`, "not a JSON object"},
	{`[]`, "not a JSON object"},
	{`{}`, "no routing_key"},
	{`{"routing_key":null,"body":"x"}`, "no routing_key"},
	{`{"routing_key":7}`, "routing_key is not a string"},
	{`{"routing_key":"ok",7:1}`, "not a JSON object"},
	{`{"routing_key":"ok","Body":"x"}`, `no field "Body"`},
	{`{"routing_key":"elsewhere","routing_key":"ok"}`, "routing_key is there twice"},
	{`{"routing_key":"ok","routing\u005fkey":"ok"}`, "routing_key is there twice"},
	{`{"routing_key":"ok","body":"lone \ud800"}`, "body holds half of a surrogate pair"},
	{`{"routing_key":"ok","body":"\ud800\ud800\udc00"}`, "half of a surrogate pair"},
	{`{"routing_key":"ok","message_id":"\uDFFF"}`, "message_id holds half"},
	{`{"routing_key":"ok"} {}`, "after top-level value"},
	{"{\"routing_key\":\"ok\xff\"}", "UTF-8"},
	{`{"routing_key":"ok","body":"","body_base64":""}`, "one of them"},
	{`{"routing_key":"ok","body_base64":"!"}`, "base64"},
	{`{"routing_key":"` + strings.Repeat("k", 256) + `"}`, "256 bytes"},
	{`{"routing_key":"ok","priority":256}`, "priority"},
	{`{"routing_key":"ok","expiration":"0"}`, "expiration"},
	{`{"routing_key":"ok","reply_to":"amq.rabbitmq.reply-to"}`, "reply-to"},
	{`{"routing_key":"ok","headers":[]}`, "headers cannot be published: not a JSON object"},
	{`{"routing_key":"ok","headers":{"` + strings.Repeat("k", 256) + `":1}}`, "256 bytes"},
	{`{"routing_key":"ok","headers":{"large":"` + strings.Repeat("k", 140_000) + `"}}`, `header "large": with everything before it too large for a frame of 131072 bytes`},
}

// TestBatchItems: each item has its own answer, and one that is refused costs the others nothing, not even one over which
// the broker would close their channel.
func TestBatchItems(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.MaxBody, o.RoutingKeys = 100, []string{"ok", "nowhere*"} })
	between := func(line, says string, want code) {
		t.Helper()
		got := r.batch(`{"routing_key":"ok","body":"before"}`, line, `{"routing_key":"ok","body":"after"}`)
		r.wantCodes(fmt.Sprintf("%.60s", line), got, published, want, published)
		if !strings.Contains(got[1].Detail, says) {
			t.Errorf("%.60s: %s", line, got[1].Detail)
		}
	}
	for _, bad := range badLines {
		between(bad.line, bad.says, invalid)
	}
	nowhere := "nowhere" + brokertest.Name(t, "q")
	for _, c := range []struct {
		line, says string
		code       code
	}{
		{`{"exchange":"` + r.exchange + `","routing_key":"ok","user_id":["not","read"],"delivery_mode":"1","delivery":{"attempt":2}}`, "", published},
		{`{"exchange":{"base64":"` + base64.StdEncoding.EncodeToString([]byte(r.exchange)) + `"},"routing_key":"ok"}`, "", published},
		{`{"exchange":"","routing_key":"` + nowhere + `"}`, "does not exist", unroutable},
		{`{"exchange":"amq.topic","routing_key":"ok"}`, "The aliases are default, ", forbidden},
		{`{"routing_key":"no"}`, "SIDECAR_PUBLISH_ROUTING_KEYS", forbidden},
		{`{"routing_key":"ok","body":"` + strings.Repeat("x", 100) + `"}`, "", published},
		{`{"routing_key":"ok","body":"` + strings.Repeat("x", 101) + `"}`, "SIDECAR_MAX_BODY", tooLarge},
		{`{"routing_key":"ok","body":"` + strings.Repeat("x", 300_000) + `"}`, "SIDECAR_MAX_BODY", tooLarge},
		{`{"routing_key":"ok","body":"\ud83d\ude00 \\ud800 \n\u00e9"}`, "", published},
		{`{"routing_key":"ok","body":{"as it is":"\ud800"}}`, "", published},
		{`{"routing_key":"ok","reply_to":"amq.rabbitmq.reply-to.not"}`, "", published},
	} {
		between(c.line, c.says, c.code)
	}
	brokertest.Eventually(t, time.Minute, "nothing is counted any more", func() bool { return r.memory.Held() == 0 && len(r.server.inflight) == 0 })
}

// A large batch arrives in its order, and no more of it is held than a window.
func TestLargeBatch(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.MaxInflight = 50 })
	const n = 400
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "{\"routing_key\":\"k\",\"body\":{\"n\":%d}}\n", i)
	}
	got := r.results(r.post("/publish:batch", lines.String(), "Content-Type", "application/x-ndjson; charset=utf-8"))
	r.wantCodes("all", got, slices.Repeat([]code{published}, n)...)
	deliveries := must.Get(r.ch.Consume(r.queue, "", true, false, false, false, nil))(t)
	for i := range n {
		if d := <-deliveries; string(d.Body) != fmt.Sprintf(`{"n":%d}`, i) {
			t.Fatalf("%d is %s", i, d.Body)
		}
	}
}
