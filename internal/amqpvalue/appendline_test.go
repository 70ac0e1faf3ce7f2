package amqpvalue_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
)

// TestAppendLine is the form as apps see it.
func TestAppendLine(t *testing.T) {
	t.Parallel()
	at := time.Unix(1700000000, 0)
	for _, c := range []struct {
		key  string
		p    amqp.Publishing
		want string
	}{
		{"k", amqp.Publishing{}, `{"exchange":"x","routing_key":"k","body":""}`},
		{"\xff", amqp.Publishing{Type: "\xfe"}, `{"exchange":"x","routing_key":{"base64":"/w=="},"type":{"base64":"/g=="},"body":""}`},
		{"", amqp.Publishing{ContentType: "application/json", MessageId: "m\"", Priority: 9, DeliveryMode: 2, Timestamp: at, Body: []byte(`{"a": [1]}`)},
			`{"exchange":"x","routing_key":"","content_type":"application/json","delivery_mode":2,"priority":9,"message_id":"m\"","timestamp":"2023-11-14T22:13:20Z","body":{"a": [1]}}`},
		{"k", amqp.Publishing{Headers: amqp.Table{"b": "é", "a": int64(1), "c": []any{nil, true, amqp.Table{"f": 1.5}}}}, `{"exchange":"x","routing_key":"k","headers":{"a":1,"b":"é","c":[null,true,{"f":1.5}]},"body":""}`},
		{"k", amqp.Publishing{Headers: amqp.Table{"n": int32(3), "t": at, "d": amqp.Decimal{Scale: 2, Value: 150}, "f": 2.0, "s": "x", "l": []any{"a", uint8(1)}, "h": amqp.Table{"a": "", "b": []byte{255}}}},
			`{"exchange":"x","routing_key":"k","headers":{"d":{"scale":2,"value":150},"f":2,"h":{"a":"","b":"/w=="},"l":["a",1],"n":3,"s":"x","t":"2023-11-14T22:13:20Z"},` +
				`"header_types":{"d":"decimal","f":"float64","h":{"b":"binary"},"l":[null,"uint8"],"n":"int32","t":"timestamp"},"body":""}`},
		{"k", amqp.Publishing{Headers: amqp.Table{"\xff": "x", "base64:": "\xff"}}, `{"exchange":"x","routing_key":"k","headers":{"base64:YmFzZTY0Og==":"/w==","base64:/w==":"x"},"header_types":{"base64:YmFzZTY0Og==":"base64","base64:/w==":null},"body":""}`},
		{"k", amqp.Publishing{Headers: amqp.Table{"odd": struct{}{}}}, `{"exchange":"x","routing_key":"k","headers":{"odd":null},"body":""}`},
	} {
		if got := string(amqpvalue.AppendLine(nil, "x", c.key, &c.p)); got != c.want {
			t.Errorf("%+v became\n%s, want\n%s", c.p, got, c.want)
		}
	}
}

// TestAppendBody: JSON is embedded only where it returns as it is.
func TestAppendBody(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	flat := "[" + strings.Repeat("[],", 10_000) + "0]"
	for _, c := range []struct{ contentType, body, want string }{
		{"application/json", `{"a":1}`, `,"body":{"a":1}`},
		{"Application/JSON ; charset=utf-8", `[1, 2]`, `,"body":[1, 2]`},
		{"application/cloudevents+json", `null`, `,"body":null`},
		{"application/json", `{"a":1,"a":"\ud800"}`, `,"body":{"a":1,"a":"\ud800"}`},
		{"application/json", `"text"`, `,"body":"\"text\""`},
		{"application/json", ` 1`, `,"body":" 1"`},
		{"application/json", "1\t", `,"body":"1\t"`},
		{"application/json", "[1,\n2]", `,"body":"[1,\n2]"`},
		{"application/json", `1,"x":2`, `,"body":"1,\"x\":2"`},
		{"application/json", deep, `,"body":"` + deep + `"`},
		{"application/json", flat, `,"body":` + flat},
		{"application/jsonl", `1`, `,"body":"1"`},
		{"", `{}`, `,"body":"{}"`},
		{"text/plain", "plain é\n", `,"body":"plain é\n"`},
		{"text/plain", "\x00\x01\x02\x03", `,"body_base64":"AAECAw=="`},
		{"", "\xff", `,"body_base64":"/w=="`},
	} {
		if got := string(amqpvalue.AppendBody(nil, &amqp.Publishing{ContentType: c.contentType, Body: []byte(c.body)}, true)); got != c.want {
			t.Errorf("%s %.50q became %.80s", c.contentType, c.body, got)
		}
	}
	if got := string(amqpvalue.AppendBody(nil, &amqp.Publishing{ContentType: "application/json", Body: []byte(`{}`)}, false)); got != `,"body":"{}"` {
		t.Errorf("not to be embedded: %s", got)
	}
}

// line is a message as a producer in Java sends it: an integer in a header has 32 bits there.
var line = amqp.Publishing{
	ContentType: "application/json", DeliveryMode: 2, MessageId: "8c0b3a52-0d0e-4f3e-9d7e-0a1b2c3d4e5f", CorrelationId: "order-4711", Timestamp: time.Unix(1700000000, 0), AppId: "orders",
	Headers: amqp.Table{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tenant": "a", "attempt": int32(3)},
	Body:    []byte(`{"items":"` + strings.Repeat("x", 1000) + `"}`),
}

func TestAppendLineAllocatesNothing(t *testing.T) { //nolint:paralleltest // it counts the allocations of the process
	out := make([]byte, 0, 8<<10)
	text := line
	text.ContentType = "text/plain"
	for _, p := range []*amqp.Publishing{&line, &text} {
		if n := testing.AllocsPerRun(100, func() { _ = amqpvalue.AppendLine(out, "orders", "order.created", p) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

// BenchmarkAppendLine is JSON of 1 KiB that is embedded, text and bytes.
func BenchmarkAppendLine(b *testing.B) {
	for name, change := range map[string]func(*amqp.Publishing){
		"json": func(*amqp.Publishing) {}, "text": func(p *amqp.Publishing) { p.ContentType = "text/plain" }, "bytes": func(p *amqp.Publishing) { p.Body = bytes.Repeat([]byte{255}, 1024) },
	} {
		b.Run(name, func(b *testing.B) {
			p := line
			change(&p)
			var out []byte
			b.ReportAllocs()
			for b.Loop() {
				out = amqpvalue.AppendLine(out[:0], "orders", "order.created", &p)
			}
		})
	}
}

func TestIsJSONLines(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]bool{
		"application/jsonl": true, "Application/X-NDJSON ; charset=utf-8": true, "application/json-lines": true, "application/x-jsonlines": true,
		"application/ndjson": true, "text/x-jsonl": true, "application/x-ldjson;a=b": true, "application/x-json-lines": true,
		"application/json": false, "application/json-seq": false, "jsonl": false, "": false, "image/jsonl": false, "application/jsonl2": false,
	} {
		if amqpvalue.IsJSONLines(kind) != want {
			t.Errorf("%q: %t, want %t", kind, !want, want)
		}
	}
}
