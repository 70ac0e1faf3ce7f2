package dispatch

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
)

func deep(n int) any {
	var v any = "x"
	for range n {
		v = amqp.Table{"a": v}
	}
	return v
}

func wide(n int, value any) amqp.Table {
	t := amqp.Table{}
	for i := range n {
		t[fmt.Sprint(i)] = value
	}
	return t
}

// TestHostileHeaders: rows 65 to 86 of the bad inputs. "(empty)" is a header without a value, "" an absent one.
func TestHostileHeaders(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		headers amqp.Table
		want    map[string]string
		left    int
	}{
		"65 value with a line break":     {amqp.Table{"X-A": "a\r\nX-Evil: 1"}, map[string]string{"Amqp-Header-X-A": "a%0D%0AX-Evil: 1"}, 0},
		"67 value with a NUL":            {amqp.Table{"X-A": "\x00"}, map[string]string{"Amqp-Header-X-A": "%00"}, 0},
		"69 key empty":                   {amqp.Table{"": "v"}, map[string]string{"Amqp-Header-": ""}, 1},
		"70 key with a space":            {amqp.Table{"a b": "v"}, map[string]string{"Amqp-Header-A-B": "v"}, 0},
		"70 key with a line break":       {amqp.Table{"a\r\nX-Evil: 1\r\nb": "v"}, map[string]string{"Amqp-Header-Ax-Evil-1b": "v"}, 0},
		"70 key in Unicode":              {amqp.Table{"größe": "v"}, map[string]string{"Amqp-Header-Gre": "v"}, 0},
		"70 key of nothing but others":   {amqp.Table{"日本": "v"}, nil, 1},
		"70 key with dot, underscore":    {amqp.Table{"a.b_c": "v"}, map[string]string{"Amqp-Header-A-B-C": "v"}, 0},
		"71 key of 255 bytes":            {amqp.Table{strings.Repeat("k", 255): "v"}, map[string]string{"Amqp-Header-" + strings.Repeat("k", 255): "v"}, 0},
		"72 value of 1 MiB":              {amqp.Table{"a": strings.Repeat("v", 1<<20), "b": "w"}, map[string]string{"Amqp-Header-A": "", "Amqp-Header-B": "w"}, 1},
		"72 value of exactly 2 KiB":      {amqp.Table{"a": strings.Repeat("v", maxValue)}, map[string]string{"Amqp-Header-A": strings.Repeat("v", maxValue)}, 0},
		"72 value of 2 KiB once encoded": {amqp.Table{"a": strings.Repeat("%", maxValue/3+1)}, map[string]string{"Amqp-Header-A": ""}, 1},
		"75 table 10 deep":               {amqp.Table{"t": deep(10)}, map[string]string{"Amqp-Header-T": strings.Repeat(`{"a":`, 10) + `"x"` + strings.Repeat("}", 10)}, 0},
		"75 table 100 deep":              {amqp.Table{"t": deep(100)}, map[string]string{"Amqp-Header-T": ""}, 1},
		"76 array of tables":             {amqp.Table{"t": []any{amqp.Table{"b": int8(1), "a": nil}, amqp.Table{}}}, map[string]string{"Amqp-Header-T": `[{"a":null,"b":1},{}]`}, 0},
		"76 table of 5000":               {amqp.Table{"t": wide(5000, nil)}, map[string]string{"Amqp-Header-T": ""}, 1},
		"76 JSON in Unicode":             {amqp.Table{"t": []any{"ü\xff\"\\\n\r\t\x01\x7f"}}, map[string]string{"Amqp-Header-T": `["%C3%BC%EF%BF%BD\"\\\n\r\t\u0001%7F"]`}, 0},
		"77 bytes that are text":         {amqp.Table{"b": []byte("a b")}, map[string]string{"Amqp-Header-B": "a b"}, 0},
		"77 bytes that are not UTF-8":    {amqp.Table{"b": []byte{0xff, 0x00}}, map[string]string{"Amqp-Header-B": "/wA="}, 0},
		"77 bytes in JSON":               {amqp.Table{"b": []any{[]byte{0xff, 0x00}, []byte("t")}}, map[string]string{"Amqp-Header-B": `["/wA=","t"]`}, 0},
		"77 bytes over the limit":        {amqp.Table{"b": make([]byte, maxValue+1)}, map[string]string{"Amqp-Header-B": ""}, 1},
		"78 void":                        {amqp.Table{"v": nil}, map[string]string{"Amqp-Header-V": "(empty)"}, 0},
		"78 empty string":                {amqp.Table{"v": ""}, map[string]string{"Amqp-Header-V": "(empty)"}, 0},
		"79 a type AMQP does not have":   {amqp.Table{"v": struct{}{}, "w": []any{struct{}{}}}, map[string]string{"Amqp-Header-V": "", "Amqp-Header-W": ""}, 2},
		"85 a name in two cases":         {amqp.Table{"x-a": "lower", "X-A": "upper"}, map[string]string{"Amqp-Header-X-A": "upper"}, 1},
		"85 two names become one":        {amqp.Table{"a_b": "underscore", "a.b": "dot"}, map[string]string{"Amqp-Header-A-B": "dot"}, 1},
		"86 forged bookkeeping": {amqp.Table{
			"X-Retry-Count": int64(0), "x_retry_count": int64(0), "X-Final-Status-Code": int64(1), "x-final.error": "e",
			"x-redriven-at": "t", "x-death": "s", "X.Death": "s", "x-first-death-queue": "q", "x-last-death-queue": "q",
			"x-delivery-count": int64(1), "x-acquired-count": int64(1), "x-deathly": "v", "x-delivery-counter": "kept",
		}, map[string]string{"Amqp-Retry-Count": "0", "Amqp-Header-X-Delivery-Counter": "kept"}, 0},
		"91 sender-selected queues":      {amqp.Table{"CC": []any{"a", "b"}, "BCC": "c"}, map[string]string{"Amqp-Header-Cc": `["a","b"]`, "Amqp-Header-Bcc": "c"}, 0},
		"a space at either end survives": {amqp.Table{"a": "  x "}, map[string]string{"Amqp-Header-A": "%20 x%20"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := withHeaders(sample(), row.headers)
			r, o := post(t, m)
			wantHeaders(t, r.Header, row.want)
			expected := 0
			for _, v := range row.want {
				if v != "" {
					expected++
				}
			}
			if n := countPrefix(r.Header, headerPrefix); n > expected {
				t.Errorf("got %d Amqp-Header-* headers, want at most %d: %v", n, expected, r.Header)
			}
			if _, ok := r.Header["X-Evil"]; ok {
				t.Error("a header was injected")
			}
			wantLeftOut(t, r, o.Truncated, row.left)
		})
	}
}

func countPrefix(h http.Header, prefix string) int {
	n := 0
	for name := range h {
		if strings.HasPrefix(name, prefix) {
			n++
		}
	}
	return n
}

func wantLeftOut(tb testing.TB, r *apptest.Request, counted, want int) {
	tb.Helper()
	header := ""
	if want > 0 {
		header = fmt.Sprint(want)
	}
	if got := r.Header.Get("Amqp-Headers-Truncated"); counted != want || got != header {
		tb.Errorf("left out: counted %d, header %q, want %d", counted, got, want)
	}
}

// Rows 73 and 74.
func TestHeaderBudget(t *testing.T) {
	t.Parallel()
	large := wide(40, strings.Repeat("v", 1000))
	large["z"] = "small, last, fits"
	for name, row := range map[string]struct {
		headers amqp.Table
		sent    int
	}{
		"73 5000 headers": {wide(5000, "v"), 72}, // maxLines without the reserved ones and ten of the sample
		"74 40 KiB":       {large, 9},            // eight of a thousand bytes, and the small one
	} {
		t.Run(name, func(t *testing.T) {
			r, o := post(t, withHeaders(sample(), row.headers))
			if n := countPrefix(r.Header, headerPrefix); n != row.sent {
				t.Errorf("%d headers sent, want %d", n, row.sent)
			}
			wantLeftOut(t, r, o.Truncated, len(row.headers)-row.sent)
			if lines := len(r.Header); lines > maxLines {
				t.Errorf("%d lines of header", lines)
			}
			size := 0
			for k, v := range r.Header {
				if strings.HasPrefix(k, headerPrefix) {
					size += len(k) + len(v[0]) + len(": \r\n")
				}
			}
			if size > maxHeaderBytes {
				t.Errorf("%d bytes of headers, budget %d", size, maxHeaderBytes)
			}
		})
	}
}

// hostile are rows 80 to 83: names that mean something to a server when they have no prefix.
var hostile = []string{
	"Host", "Content-Length", "Content-Type", "Content-Encoding", "Transfer-Encoding", "Trailer", "Connection", "Expect",
	"Upgrade", "TE", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Authorization", "Cookie", "Set-Cookie",
	"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "X-Real-IP", "X-Original-URL", "X-Rewrite-URL",
	"X-HTTP-Method-Override", "User-Agent", "Amqp-Queue", "Amqp-Header-A", "ce-id",
	"X_Forwarded_For", "transfer.encoding", "HOST", "Content_Length", "Ho:st", "Host\r\n", "amqp_last_attempt",
}

func TestNoMessageHeaderBecomesABareOne(t *testing.T) {
	t.Parallel()
	m := withHeaders(sample(), amqp.Table{})
	for _, n := range hostile {
		m.Headers[n] = "999"
	}
	for name, change := range map[string]func(*Options){
		"by default":                        func(*Options) {},
		"passing every name through":        func(o *Options) { o.Passthrough = []string{"*"} },
		"passing them through by name":      func(o *Options) { o.Passthrough = hostile },
		"passing through in CloudEvents":    func(o *Options) { o.Passthrough, o.CloudEvents = []string{"*"}, true },
		"passing through, forwarding none":  func(o *Options) { o.Passthrough, o.Forward = []string{"*"}, []string{} },
		"81 with connection naming headers": func(o *Options) { o.Passthrough = []string{"connection", "x-*"} },
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := post(t, m, change)
			for k, values := range r.Header {
				if !strings.HasPrefix(k, headerPrefix) && len(values) > 0 && values[0] == "999" {
					t.Errorf("%s: 999 has no prefix", k)
				}
				if len(values) != 1 {
					t.Errorf("%s came %d times", k, len(values))
				}
			}
		})
	}
}

// Row 84.
func TestIdempotencyKeyMayPassThrough(t *testing.T) {
	t.Parallel()
	m := withHeaders(sample(), amqp.Table{"Idempotency-Key": "k", "x_tenant": "t", "other": "o"})
	r, _ := post(t, m, func(o *Options) { o.Passthrough = []string{"idempotency-key", "X_*"} })
	wantHeaders(t, r.Header, map[string]string{
		"Idempotency-Key": "k", "X-Tenant": "t", "Amqp-Header-Other": "o",
		"Amqp-Header-Idempotency-Key": "", "Amqp-Header-X-Tenant": "",
	})
}

// Row 87: what the message says about the trace is the caller's to judge.
func TestTraceHeadersComeOnlyFromTheTraceContext(t *testing.T) {
	t.Parallel()
	m := withHeaders(sample(), amqp.Table{"traceparent": "garbage", "TraceState": strings.Repeat("x", 2048), "baggage": "secret=1"})
	m.Trace.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	r, o := post(t, m, func(o *Options) { o.Passthrough = []string{"traceparent", "tracestate", "baggage", "t*"} })
	wantHeaders(t, r.Header, map[string]string{"Traceparent": m.Trace.Traceparent, "Tracestate": "", "Baggage": ""})
	if n := countPrefix(r.Header, headerPrefix); n != 0 {
		t.Errorf("%d Amqp-Header-* headers, want 0", n)
	}
	wantLeftOut(t, r, o.Truncated, 0)
}
