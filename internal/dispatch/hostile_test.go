package dispatch

import (
	"bytes"
	"fmt"
	"math"
	"strings"
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
