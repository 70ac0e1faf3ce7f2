package test

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// headerScene runs a sidecar against a raw app that takes everything.
func headerScene(t *testing.T, pairs ...string) (*scene, *rawApp, *sidecar) {
	t.Helper()
	raw := newRawApp(t, func(c net.Conn, _ *rawRequest) bool { return say(c, ok200) })
	sc := newScene(t).with("APP_URL", raw.url()).with(pairs...).seed()
	return sc, raw, sc.run()
}

func (sc *scene) sendHeaders(id string, h amqp.Table) {
	sc.t.Helper()
	m := message(id)
	m.Headers = h
	sc.sendMessage(m)
}

// TestScalarHeaders follow the reference of encoding_test.go to the byte.
func TestScalarHeaders(t *testing.T) {
	t.Parallel()
	sc, raw, s := headerScene(t)
	values := map[string]any{
		"plain": "value", "x-foo_bar.baz qux": "names", "weird:()<>@,;\\\"/[]?={}key": "kept letters", "grün": "umlaut in the name",
		"crlf": "a\r\nX-Injected: 1", "lf": "a\nb", "nul": "a\x00b", "del": "a\x7fb", "tab": "a\tb", "percent": "100%41", "utf8": "größe €",
		"latin1": "\xe9t\xe9", "quotes": `"a", 'b' \ ; , <>`, "true": true, "false": false,
		"int8": int8(-128), "int16": int16(-32768), "int32": int32(-2147483648), "int64": int64(math.MinInt64), "uint8": uint8(255),
		"maxint64": int64(math.MaxInt64), "time": time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
		"bytes": []byte("text as bytes"), "binary": []byte{0xff, 0x00, 0xfe}, "bytescrlf": []byte("a\r\nX-Injected: 1"),
	}
	i := 0
	ids := map[string]string{}
	for key, v := range values {
		id := "scalar-" + strconv.Itoa(i)
		i++
		ids[id] = key
		sc.sendHeaders(id, amqp.Table{key: v})
	}
	for id, key := range ids {
		r := raw.await(id, 1)[0]
		text, ok := wantText(values[key])
		if !ok {
			t.Fatalf("no reference for %T", values[key])
		}
		if got := r.values(wantName(key)); !slices.Equal(got, []string{wantEscape(text)}) {
			t.Errorf("header %q of %#v: %q, want %q once\n%s", key, values[key], got, wantEscape(text), r.head)
		}
		if v := r.values("X-Injected"); v != nil {
			t.Errorf("header %q injected a line: %q", key, v)
		}
	}
	sc.settledAll(s, 0)
}

// TestTablesAndArraysAreJSON, and numbers with a fraction are decimal text.
func TestTablesAndArraysAreJSON(t *testing.T) {
	t.Parallel()
	sc, raw, s := headerScene(t)
	sc.sendHeaders("values", amqp.Table{
		"table": amqp.Table{"a": "x", "n": int32(7), "t": true, "nil": nil, "deep": amqp.Table{"b": []any{"y", int64(2)}}},
		"array": []any{amqp.Table{"k": "v\r\nX-Injected: 1"}, "größe", 1.5, []byte("text")}, "empty": amqp.Table{}, "none": []any{},
		"f32": float32(1.5), "f64": 0.1, "huge": 1e300, "void": nil, "decimal": amqp.Decimal{Scale: 2, Value: 1234},
	})
	for id, v := range map[string]float64{"nan": math.NaN(), "inf": math.Inf(-1)} {
		m := message(id)
		m.Headers = amqp.Table{"v": v}
		if sc.accepted(m) { // RabbitMQ up to 3.13 refuses them itself
			raw.await(id, 1)
		}
	}
	r := raw.await("values", 1)[0]
	for key, want := range map[string]string{
		"table": `{"a":"x","deep":{"b":["y",2]},"n":7,"nil":null,"t":true}`, "array": `[{"k":"v\r\nX-Injected: 1"},"gr%C3%B6%C3%9Fe",1.5,"text"]`,
		"empty": "{}", "none": "[]", "f32": "1.5", "f64": "0.1", "huge": "1e+300", "void": "", "decimal": "12.34",
	} {
		if got := r.values(wantName(key)); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q, want %q once", key, got, want)
		}
	}
	sc.settledAll(s, 0)
}

// TestHostileHeaderNames: whatever the name, one well-formed request arrives and nothing real is set by it.
func TestHostileHeaderNames(t *testing.T) {
	t.Parallel()
	sc, raw, s := headerScene(t)
	names := []string{"", " ", ":", ":authority", "a\r\nX-Injected: 1\r\nb", "ünïcode", "\x00", strings.Repeat("n", 255), "a:b", "()", "X-Injected: 1\r\n\r\nPOST /evil"}
	for i, n := range names {
		sc.sendHeaders(fmt.Sprintf("name-%d", i), amqp.Table{n: "v"})
	}
	for i, n := range names {
		r := raw.await(fmt.Sprintf("name-%d", i), 1)[0]
		if r.values("X-Injected") != nil {
			t.Errorf("name %q injected a header:\n%s", n, r.head)
		}
		if want := wantName(n); want != "Amqp-Header-" && !slices.Equal(r.values(want), []string{"v"}) {
			t.Errorf("name %q: %q is %q, want it once", n, want, r.values(want))
		}
	}
	sc.settledAll(s, 0)
}

// TestNoMessageHeaderIsABareHTTPHeader: rows of hop-by-hop, routing, credentials and our own names.
func TestNoMessageHeaderIsABareHTTPHeader(t *testing.T) {
	t.Parallel()
	sc, raw, s := headerScene(t)
	forged := []string{
		"Host", "Content-Length", "Transfer-Encoding", "Trailer", "Connection", "Expect", "Upgrade", "TE", "Keep-Alive", "Proxy-Authorization",
		"Proxy-Connection", "Authorization", "Cookie", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "X-Real-IP",
		"X-Original-URL", "X-HTTP-Method-Override", "Idempotency-Key", "X-Idempotency-Key", "User-Agent", "Content-Type", "Content-Encoding",
		"Amqp-Delivery-Attempt", "Amqp-Retry-Count", "Amqp-Last-Attempt", "Amqp-Redelivered", "Amqp-Max-Retries", "Amqp-Queue", "Amqp-Message-Id",
	}
	h := amqp.Table{}
	for _, n := range forged {
		h[n] = "forged-7"
	}
	sc.sendHeaders("forged", h)
	r := raw.await("forged", 1)[0]
	for _, l := range r.lines {
		name, value, _ := strings.Cut(l, ":")
		if strings.Contains(value, "forged-7") && !strings.HasPrefix(strings.ToLower(name), "amqp-header-") {
			t.Errorf("a message header set %q", l)
		}
	}
	for _, n := range forged {
		if got := r.values("Amqp-Header-" + n); !slices.Equal(got, []string{"forged-7"}) {
			t.Errorf("Amqp-Header-%s: %q, want it once", n, got)
		}
	}
	sc.settledAll(s, 0)
}

func TestBookkeepingIsLeftOut(t *testing.T) {
	t.Parallel()
	sc, raw, s := headerScene(t)
	sc.sendHeaders("own", amqp.Table{
		"x-first-death-queue": "q", "x-last-death-reason": "rejected", "x-delivery-count": int64(1), "x-acquired-count": int64(1),
		"x-final-status-code": int64(500), "x-redriven-by": "me", "x-retry-queue": sc.queue(), "x-mine": "stays",
	})
	r := raw.await("own", 1)[0]
	for _, l := range r.lines {
		low := strings.ToLower(l)
		for _, p := range []string{"x-death", "x-first-death", "x-last-death", "x-delivery-count", "x-acquired-count", "x-final-", "x-redriven-", "x-retry-"} {
			if strings.HasPrefix(low, "amqp-header-"+p) {
				t.Errorf("bookkeeping went to the app: %q", l)
			}
		}
	}
	if r.value("Amqp-Header-X-Mine") != "stays" {
		t.Error("a header of the message itself is missing")
	}
	sc.settledAll(s, 0)
}

// TestTwoNamesThatBecomeOne: one line, and the same one every time.
func TestTwoNamesThatBecomeOne(t *testing.T) {
	t.Parallel()
	sc, raw, s := headerScene(t)
	first := ""
	for i := range 20 {
		id := fmt.Sprintf("twin-%d", i)
		sc.sendHeaders(id, amqp.Table{"x-a": "1", "X-A": "2", "x_a": "3", "x.a": "4"})
		got := raw.await(id, 1)[0].values("Amqp-Header-X-A")
		if len(got) != 1 {
			t.Fatalf("%d lines of one name: %q", len(got), got)
		}
		if first == "" {
			first = got[0]
		} else if got[0] != first {
			t.Fatalf("value %q once and %q another time", first, got[0])
		}
	}
	sc.settledAll(s, 0)
}

// TestHeaderBudget: 8 KiB a message, 2 KiB a value, the rest is counted.
func TestHeaderBudget(t *testing.T) {
	t.Parallel()
	sc, raw, s := headerScene(t)
	many, large := amqp.Table{}, amqp.Table{}
	for i := range 500 {
		many[fmt.Sprintf("h%04d", i)] = strings.Repeat("v", 40)
	}
	for i := range 30 {
		large[fmt.Sprintf("l%02d", i)] = strings.Repeat("v", 1000)
	}
	cases := map[string]amqp.Table{
		"many": many, "large": large,
		"value":   {"big": strings.Repeat("v", 2049), "edge": strings.Repeat("v", 2048), "small": "v"},
		"escaped": {"big": strings.Repeat("ü", 700), "small": "v"}, // 1400 bytes of text, 4200 on the wire
		"100KiB":  {"big": strings.Repeat("v", 100<<10), "small": "v"},
	}
	for id, h := range cases {
		sc.sendHeaders(id, h)
	}
	for id, h := range cases {
		r := raw.await(id, 1)[0]
		size, passed := 0, 0
		for _, l := range r.lines {
			if name, value, _ := strings.Cut(l, ":"); strings.HasPrefix(strings.ToLower(name), "amqp-header-") {
				passed++
				size += len(name) + len(strings.TrimSpace(value))
			}
		}
		if size > 8<<10 {
			t.Errorf("%s: %d bytes of headers, the budget is 8192", id, size)
		}
		left, _ := strconv.Atoi(r.value("Amqp-Headers-Truncated"))
		if passed+left != len(h) {
			t.Errorf("%s: %d passed + %d counted as left out, %d were sent", id, passed, left, len(h))
		}
	}
	if r := raw.seen("value")[0]; r.value("Amqp-Header-Big") != "" || len(r.value("Amqp-Header-Edge")) != 2048 || r.value("Amqp-Header-Small") != "v" {
		t.Errorf("2049 bytes must be left out, 2048 pass: got %d and %d", len(r.value("Amqp-Header-Big")), len(r.value("Amqp-Header-Edge")))
	}
	if n := s.metric("sidecar_headers_truncated_total"); n < 1 {
		t.Errorf("sidecar_headers_truncated_total is %v", n)
	}
	sc.settledAll(s, 0)
}

func TestForwardAndPassthrough(t *testing.T) {
	t.Parallel()
	sc, raw, s := headerScene(t, "FORWARD_HEADERS", "x-keep-*,exact", "PASSTHROUGH_HEADERS", "traceparent,x-tenant")
	sc.sendHeaders("a", amqp.Table{"x-keep-me": "1", "exact": "2", "other": "3", "x-tenant": "t\r\nX-Injected: 1", "tracestate": "a=1"})
	r := raw.await("a", 1)[0]
	if r.value("Amqp-Header-X-Keep-Me") != "1" || r.value("Amqp-Header-Exact") != "2" {
		t.Errorf("listed headers are missing:\n%s", r.head)
	}
	if r.values("Amqp-Header-Other") != nil {
		t.Error("a header that is not listed was forwarded")
	}
	if len(r.values("X-Tenant")) > 1 || r.values("X-Injected") != nil {
		t.Errorf("the passed-through header broke out:\n%s", r.head)
	}
	sc.sendHeaders("b", amqp.Table{"x-tenant": "acme"})
	if got := raw.await("b", 1)[0].values("X-Tenant"); !slices.Equal(got, []string{"acme"}) {
		t.Errorf("X-Tenant %q, want acme once", got)
	}
	sc.settledAll(s, 0)
}

// TestHostileProperties: ids, types and content types that would like to be more than a value.
func TestHostileProperties(t *testing.T) {
	t.Parallel()
	sc, raw, s := headerScene(t)
	evil := "a\r\nX-Injected: 1\r\n\r\nPOST /evil HTTP/1.1\r\n\x00\x7fü%"
	sc.sendMessage(amqp.Publishing{MessageId: "props", ContentType: evil, ContentEncoding: evil, CorrelationId: evil, ReplyTo: evil, Type: evil, AppId: evil})
	sc.sendMessage(amqp.Publishing{MessageId: strings.Repeat("m", 255), ContentType: strings.Repeat("c", 255), CorrelationId: "long"})
	sc.sendMessage(amqp.Publishing{MessageId: evil, CorrelationId: "evil-id"})
	sc.sendMessage(amqp.Publishing{MessageId: "times", Timestamp: time.Unix(253402300799, 0), Priority: 255})
	sc.sendMessage(amqp.Publishing{MessageId: "zero", Timestamp: time.Unix(0, 0)})
	sc.sendMessage(amqp.Publishing{MessageId: "far", Timestamp: time.Unix(math.MaxInt64, 0)})
	sc.sendMessage(amqp.Publishing{MessageId: "negative", Timestamp: time.Unix(-1, 0)})
	sc.publish(sc.exchange(), strings.Repeat("k", 255), message("longkey"))
	sc.publish(sc.exchange(), evil, message("evilkey"))
	sc.publish(sc.exchange(), "", message("nokey"))

	r := raw.await("props", 1)[0]
	for _, h := range []string{"Amqp-Correlation-Id", "Amqp-Reply-To", "Amqp-Type", "Amqp-App-Id"} {
		if got := unescape(t, r.value(h)); got != evil {
			t.Errorf("%s reads back as %q", h, got)
		}
	}
	raw.await(strings.Repeat("m", 255), 1)
	if got := raw.await("times", 1)[0]; got.value("Amqp-Timestamp") != "9999-12-31T23:59:59Z" || got.value("Amqp-Priority") != "255" {
		t.Errorf("timestamp %q priority %q", got.value("Amqp-Timestamp"), got.value("Amqp-Priority"))
	}
	if got := raw.await("zero", 1)[0].value("Amqp-Timestamp"); got != "1970-01-01T00:00:00Z" {
		t.Errorf("a timestamp of 0 is set and reads %q", got)
	}
	for _, id := range []string{"far", "negative", "longkey", "evilkey", "nokey"} {
		raw.await(id, 1)
	}
	if got := raw.seen("longkey")[0].value("Amqp-Routing-Key"); len(got) != 255 {
		t.Errorf("a routing key of 255 bytes arrived with %d", len(got))
	}
	if got := unescape(t, raw.seen("evilkey")[0].value("Amqp-Routing-Key")); got != evil {
		t.Errorf("the routing key reads back as %q", got)
	}
	for l := range strings.Lines(s.log.String()) {
		if !json.Valid([]byte(l)) {
			t.Errorf("a property broke a log line: %q", l)
		}
	}
	for _, r := range raw.all() {
		if r.values("X-Injected") != nil || !strings.HasPrefix(r.head, "POST / HTTP/1.1\r\n") {
			t.Errorf("a property broke out:\n%s", r.head)
		}
	}
	sc.settledAll(s, 0)
}
