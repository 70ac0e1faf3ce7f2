package dispatch

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

// hostileMessages are messages of which nothing is harmless, and some that are.
func hostileMessages() map[string]*message.Message {
	all := map[string]*message.Message{"everything": everything(), "sample": sample(), "nothing": {Queue: "q"}}
	text := strings.Repeat("\"\\\r\n\x00\xff<é\u2028%", 15) // 210 bytes
	for name, change := range map[string]func(m *message.Message){
		"texts": func(m *message.Message) {
			m.MessageID, m.CorrelationID, m.ReplyTo, m.Type, m.AppID, m.UserID = text, text, text, text, text, text
			m.Exchange, m.RoutingKey, m.Queue, m.Expiration, m.ContentEncoding = text, text, text, text, text
			m.ContentType = text
		},
		"no id": func(m *message.Message) { m.MessageID, m.Type, m.Exchange, m.RoutingKey = "", "", "", "" },
		"parts": func(m *message.Message) {
			m.ContentType, m.Body = "multipart/mixed; boundary=x", []byte("--x\r\n\r\n\r\n--x--\r\n")
		},
		"a boundary":  func(m *message.Message) { m.Body = []byte("\r\n--ABCDEFGHIJKLMNOPQRSTUVWXYZ--\r\n") },
		"binary":      func(m *message.Message) { m.Body = []byte("\x00\xff\xfe\r\n") },
		"binary text": func(m *message.Message) { m.ContentType, m.Body = "text/plain", []byte("\xff") },
		"text": func(m *message.Message) {
			m.ContentType, m.Body = "Text/plain; charset=utf-8", []byte("größe \"\\\n\u2028")
		},
		"text of escapes":     func(m *message.Message) { m.ContentType, m.Body = "text/plain", bytes.Repeat([]byte{1}, 1000) },
		"empty":               func(m *message.Message) { m.Body = nil },
		"JSON over lines":     func(m *message.Message) { m.Body = []byte("{\r\n \"a\": [1,\n2]}\n") },
		"JSON with twice one": func(m *message.Message) { m.Body = []byte(`{"a":1,"a":2}`) },
		"injection":           func(m *message.Message) { m.Body = []byte(`1},{"id":"forged"`) },
		"not UTF-8":           func(m *message.Message) { m.Body = []byte("{\"a\":\"\xff\"}") },
		"a suffix":            func(m *message.Message) { m.ContentType = "application/vnd.x+json; v=1" },
		"structured": func(m *message.Message) {
			m.ContentType, m.Body = "application/cloudevents+json", []byte("\n{\"id\":\"e-1\"}\n")
		},
		"structured, broken": func(m *message.Message) { m.ContentType, m.Body = "application/cloudevents+json", []byte(`{"id":`) },
		"structured, a list": func(m *message.Message) {
			m.ContentType, m.Body = "application/cloudevents-batch+json", []byte(`[{"id":"e-1"}]`)
		},
		"a timestamp": func(m *message.Message) { m.Timestamp = time.Unix(math.MaxInt64/2, 0) },
		"a trace": func(m *message.Message) {
			m.Trace = message.TraceContext{Traceparent: "00-x\r\nX-Evil: 1", Tracestate: "\xff", Baggage: "k=ü"}
		},
		"event": func(m *message.Message) {
			m.Headers = amqp.Table{
				"cloudEvents_id": "e-1", "cloudEvents:source": "/s", "cloudEvents_type": "t", "cloudEvents_specversion": "1.0", "cloudEvents_time": time.Unix(0, 0),
				"cloudEvents_subject": "a \"b\" \\ ü\n", "cloudEvents_n": int32(7), "cloudEvents_yes": true, "cloudEvents_bytes": []byte("\x00\xff"), "cloudEvents_void": nil,
				"cloudEvents_datacontenttype": "text/csv", "cloudEvents_dataschema": "urn:x", "tenant": "acme", "cloudEvents_traceparent": "own",
			}
		},
		"event, no property": func(m *message.Message) {
			m.ContentType, m.Headers = "", amqp.Table{"cloudEvents:datacontenttype": "text/csv"}
		},
		"event, names": func(m *message.Message) {
			m.Headers = amqp.Table{
				"cloudEvents_ID": "upper", "cloudEvents_id": "lower", "cloudEvents:id": "colon", "cloudEvents_data": "x", "cloudEvents_data_base64": "x",
				"cloudEvents_a-b": "x", "cloudEvents_": "x", "cloudEvents_é": "x", "cloudEvents_\"": "x", "cloudEvents_deliveryattempt": "99", "cloudEvents_subject": "",
			}
		},
		"long values": func(m *message.Message) {
			m.Headers = amqp.Table{"a": strings.Repeat("x", maxValue+1), "cloudEvents_a": strings.Repeat("x", maxValue+1), "cloudEvents_b": []byte(strings.Repeat("x", maxValue)), "cloudEvents_type": strings.Repeat("\x01", maxValue)}
		},
		"many headers": func(m *message.Message) {
			m.Headers = amqp.Table{}
			for i := range 200 {
				m.Headers[fmt.Sprintf("h%d", i)] = strings.Repeat("\x01", 100)
				m.Headers[fmt.Sprintf("cloudEvents_h%d", i)] = strings.Repeat("\x01", 100)
			}
		},
		"typed headers": func(m *message.Message) {
			m.Headers = amqp.Table{
				"\xff": nil, "": int8(-1), "base64:": true, "list": []any{nil, nil, int8(1), uint16(2), float32(1.5), math.Inf(-1), []any{}, amqp.Table{"\x01": "\xff"}},
				"decimal": amqp.Decimal{Scale: 2, Value: -1}, "time": time.Unix(1, 0), "bytes": []byte("\xff\x01"), "float": 1e300, "table": amqp.Table{"": nil, "cloudEvents_x": "\""},
			}
		},
	} {
		m := sample()
		change(m)
		all[name] = m
	}
	return all
}

// TestHostileMessages: rows 46 to 64 of the bad inputs. Each must reach the app as exactly one request with its body
// byte for byte.
func TestHostileMessages(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 255)
	for name, row := range map[string]struct {
		change func(*message.Message)
		want   map[string]string // "" = absent
		left   int
	}{
		"46 empty body":                     {func(m *message.Message) { m.Body = nil }, map[string]string{"Content-Length": "0"}, 0},
		"49 invalid UTF-8 called JSON":      {func(m *message.Message) { m.Body = []byte("\xff\xfe{") }, map[string]string{"Content-Type": "application/json"}, 0},
		"50 compressed body is passed on":   {func(m *message.Message) { m.ContentEncoding = "gzip"; m.Body = []byte("\x1f\x8b") }, map[string]string{"Content-Encoding": "gzip"}, 0},
		"51 content type missing":           {func(m *message.Message) { m.ContentType = "" }, map[string]string{"Content-Type": octetStream}, 0},
		"52 content type with a line break": {func(m *message.Message) { m.ContentType = "text/plain\r\nX-Evil: 1" }, map[string]string{"Content-Type": octetStream}, 1},
		"52 content type multipart":         {func(m *message.Message) { m.ContentType = `multipart/form-data; boundary="a%20b"` }, map[string]string{"Content-Type": `multipart/form-data; boundary="a%20b"`}, 0},
		"52 content type with odd spaces":   {func(m *message.Message) { m.ContentType = " text/plain" }, map[string]string{"Content-Type": octetStream}, 1},
		"52 content type that is no type":   {func(m *message.Message) { m.ContentType = "json" }, map[string]string{"Content-Type": "json"}, 0},
		"52 content encoding hostile":       {func(m *message.Message) { m.ContentEncoding = "gzip\r\nX-Evil: 1" }, map[string]string{"Content-Encoding": "", "Amqp-Content-Encoding": "gzip%0D%0AX-Evil: 1"}, 0},
		"53 message id missing":             {func(m *message.Message) { m.MessageID = "" }, map[string]string{"Amqp-Message-Id": ""}, 0},
		"54 message id of 255 bytes":        {func(m *message.Message) { m.MessageID = long }, map[string]string{"Amqp-Message-Id": long}, 0},
		"54 message id with a line break":   {func(m *message.Message) { m.MessageID = "a\r\nX-Evil: 1" }, map[string]string{"Amqp-Message-Id": "a%0D%0AX-Evil: 1"}, 0},
		"54 message id in Unicode":          {func(m *message.Message) { m.MessageID = "größe 100%" }, map[string]string{"Amqp-Message-Id": "gr%C3%B6%C3%9Fe 100%25"}, 0},
		"56 timestamp 0":                    {func(m *message.Message) { m.Timestamp = time.Unix(0, 0) }, map[string]string{"Amqp-Timestamp": "1970-01-01T00:00:00Z"}, 0},
		"56 timestamp beyond the year 9999": {func(m *message.Message) { m.Timestamp = time.Unix(math.MaxInt64/2, 0) }, map[string]string{"Amqp-Timestamp": ""}, 1},
		"56 timestamp in milliseconds":      {func(m *message.Message) { m.Timestamp = time.Unix(1772000000123, 0) }, map[string]string{"Amqp-Timestamp": "2026-02-25T06:13:20Z"}, 0},
		"56 milliseconds of 2287":           {func(m *message.Message) { m.Timestamp = time.Unix(10003651200000, 0) }, map[string]string{"Amqp-Timestamp": ""}, 1},
		"56 timestamp uint64 max":           {func(m *message.Message) { m.Timestamp = time.Unix(-1, 0) }, map[string]string{"Amqp-Timestamp": "1969-12-31T23:59:59Z"}, 0},
		"56 timestamp far below zero":       {func(m *message.Message) { m.Timestamp = time.Unix(math.MinInt64, 0) }, map[string]string{"Amqp-Timestamp": ""}, 1},
		"a trace that cannot be in a header": {func(m *message.Message) {
			m.Trace = message.TraceContext{Traceparent: "00-x\r\nX-Evil: 1", Tracestate: strings.Repeat("a", maxTrace+1), Baggage: "k=ü"}
		}, map[string]string{"Traceparent": "", "Tracestate": "", "Baggage": "", "Amqp-Headers-Truncated": "3"}, 3},
		"58 expiration no number":        {func(m *message.Message) { m.Expiration = "abc" }, map[string]string{"Amqp-Expiration": "abc"}, 0},
		"59 reply to with a line break":  {func(m *message.Message) { m.ReplyTo = "\r\n\r\nGET / HTTP/1.1" }, map[string]string{"Amqp-Reply-To": "%0D%0A%0D%0AGET / HTTP/1.1"}, 0},
		"59 correlation id with a NUL":   {func(m *message.Message) { m.CorrelationID = "a\x00b\x7f" }, map[string]string{"Amqp-Correlation-Id": "a%00b%7F"}, 0},
		"61 app id and type hostile":     {func(m *message.Message) { m.AppID, m.Type = "\t", " \n " }, map[string]string{"Amqp-App-Id": "%09", "Amqp-Type": "%20%0A%20"}, 0},
		"62 routing key of 255 bytes":    {func(m *message.Message) { m.RoutingKey = long }, map[string]string{"Amqp-Routing-Key": long}, 0},
		"62 routing key empty":           {func(m *message.Message) { m.RoutingKey = "" }, map[string]string{"Amqp-Routing-Key": "(empty)"}, 0},
		"62 key no broker would deliver": {func(m *message.Message) { m.RoutingKey = strings.Repeat("é", maxValue) }, map[string]string{"Amqp-Routing-Key": ""}, 1},
		"64 default exchange":            {func(m *message.Message) { m.Exchange = "" }, map[string]string{"Amqp-Exchange": "(empty)"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := sample()
			row.change(m)
			r, o := post(t, m)
			wantHeaders(t, r.Header, row.want)
			if _, ok := r.Header["X-Evil"]; ok {
				t.Error("a header was injected")
			}
			if o.Truncated != row.left {
				t.Errorf("%d headers counted as left out, want %d", o.Truncated, row.left)
			}
		})
	}
}

// wantHeaders compares single values; "" stands for an absent header and "(empty)" for one without a value.
func wantHeaders(tb testing.TB, got http.Header, want map[string]string) {
	tb.Helper()
	for name, v := range want {
		values, ok := got[http.CanonicalHeaderKey(name)]
		switch {
		case v == "" && !ok:
		case len(values) != 1:
			tb.Errorf("%s: got %q, want one value %q", name, values, v)
		case v == "(empty)" && values[0] == "", values[0] == v:
		default:
			tb.Errorf("%s: got %q, want %q", name, values[0], v)
		}
	}
}

// Row 48.
func TestBodyOverTheLimitIsNotSent(t *testing.T) {
	t.Parallel()
	s, target := listen(t, 204, func(o *Options) { o.MaxBody = 16 << 20 })
	m := sized(16 << 20)
	wantStatus(t, dispatch(t, target, m), 204)
	if got := s.Requests()[0].Body; !bytes.Equal(got, m.Body) {
		t.Error("the body changed")
	}
	m.Body = make([]byte, 16<<20+1)
	o := dispatch(t, target, m)
	wantFailure(t, o, message.FailureTooLarge, "body too large: 16777217 bytes, limit 16777216")
	wantSeen(t, s, 1, 1)
}
