package amqpvalue_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

func all(string) bool { return false }

// read returns the message of a line.
func read(text []byte) (l amqpvalue.Line, p amqp.Publishing, err error) {
	if err = l.Decode(bytes.Clone(text)); err != nil {
		return l, p, err
	}
	if p = l.Msg; l.Base64 != nil {
		if p.Body, err = base64.StdEncoding.AppendDecode(nil, l.Base64); err != nil {
			return l, p, err
		}
	}
	if p.Headers, _, err = l.Headers(all, math.MaxInt); err == nil {
		err = l.Invalid
	}
	return l, p, err
}

// equal compares messages as they are on the wire: there a time has whole seconds and no zone, and nothing is like an empty table.
func equal(t testing.TB, a, b amqp.Publishing) bool {
	form := func(p amqp.Publishing) string {
		headers := must.Get(json.Marshal(amqpvalue.TypedTable(p.Headers)))(t)
		properties := must.Get(json.Marshal(amqpvalue.Properties(p)))(t)
		return string(headers) + string(properties) + string(p.Body)
	}
	return form(a) == form(b)
}

// TestLineReads what people and other programs write.
func TestLineReads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want amqp.Publishing
	}{
		{`{"routing_key":"k"}`, amqp.Publishing{}},
		{`{"routing_key":"k","exchange":null,"body_base64":null,"headers":null,"header_types":null,"delivery":{"any":["\ud800"]}}`, amqp.Publishing{}},
		{`{"routing_key":"k","body":{"a": 1}}`, amqp.Publishing{ContentType: "application/json", Body: []byte(`{"a": 1}`)}},
		{`{"routing_key":"k","body":[],"content_type":""}`, amqp.Publishing{Body: []byte(`[]`)}},
		{`{"routing_key":"k","body":"a\u00e9\ud83d\ude00\"\\u0041"}`, amqp.Publishing{Body: []byte(`aé😀"\u0041`)}},
		{`{"routing_key":"k","headers":{"n":1,"gone":2},"header_types":{"n":"int64","other":"int32"}}`, amqp.Publishing{Headers: amqp.Table{"n": int64(1), "gone": int64(2)}}},
		{`{"routing_key":"k","headers":{"n":"7","t":5,"base64:eA==":1,"l":[1,2]},"header_types":{"n":"int8","t":"timestamp","l":["uint8"]}}`,
			amqp.Publishing{Headers: amqp.Table{"n": int8(7), "t": time.Unix(5, 0), "base64:eA==": int64(1), "l": []any{uint8(1), int64(2)}}}},
		{`{"routing_key":"k","header_types":{"n":"int8"}}`, amqp.Publishing{}},
	} {
		if l, got, err := read([]byte(c.text)); err != nil || !equal(t, got, c.want) || l.Exchange != nil || l.RoutingKey != "k" {
			t.Errorf("%s became %+v, %v", c.text, got, err)
		}
	}
}

func TestLineRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"routing_key":"k","header_types":[1],"headers":{}}`:                                                        "header_types: not a JSON object",
		`{"routing_key":"k","header_types":{"a":1e400},"headers":{}}`:                                                "header_types: the number",
		`{"routing_key":"k","header_types":{"n":"int8"},"headers":{"n":300}}`:                                        `header "n": value of type "int8"`,
		`{"routing_key":"k","header_types":{"n":"int8"},"headers":{"n":null}}`:                                       "not a single value",
		`{"routing_key":"k","header_types":{"n":"table"},"headers":{"n":{"a":{"type":"void"}}}}`:                     "not a single value",
		`{"routing_key":"k","header_types":{"n":"array"},"headers":{"n":[{"type":"void"}]}}`:                         "not a single value",
		`{"routing_key":"k","header_types":{"n":"colour"},"headers":{"n":1}}`:                                        "unknown type",
		`{"routing_key":"k","header_types":{"n":"base64"},"headers":{"n":"!"}}`:                                      "illegal base64",
		`{"routing_key":"k","header_types":{"n":{"a":"int8"}},"headers":{"n":[1]}}`:                                  "not what its type says",
		`{"routing_key":"k","header_types":{"n":["int8"]},"headers":{"n":{"a":1}}}`:                                  "not what its type says",
		`{"routing_key":"k","header_types":{"n":["int8"]},"headers":{"n":1}}`:                                        "not what its type says",
		`{"routing_key":"k","header_types":{"n":true},"headers":{"n":1}}`:                                            "not what its type says",
		`{"routing_key":"k","header_types":{"base64:eA==":null},"headers":{"base64:eA==":1}}`:                        "need not be in base64",
		`{"routing_key":"k","header_types":{"base64:!":null},"headers":{"base64:!":1}}`:                              "illegal base64",
		`{"routing_key":"k","header_types":{"base64:/w==":null},"headers":{"base64:/w==":1,"\ufffd":1}}`:             "",
		`{"routing_key":"k","header_types":{"a":"\ud800"},"headers":{"a":1}}`:                                        "header_types holds half of a surrogate pair",
		`{"routing_key":"k","body_base64":7}`:                                                                        "body_base64 is not a string",
		`{"routing_key":{"base64":"!"}}`:                                                                             "the field routing_key cannot be read: ",
		`{"routing_key":"k","exchange":{}}`:                                                                          "the field exchange is not a string",
		`{"routing_key":"k","priority":"x"}`:                                                                         "priority must be",
		`{"routing_key":"k","header_types":{"n":"binary"},"headers":{"n":"` + strings.Repeat("AAAA", 44<<10) + `"}}`: "too large for a frame",
	} {
		if _, got, err := read([]byte(text)); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.100s became %+v, %v", text, got, err)
		}
	}
	var l amqpvalue.Line
	must.Do(t, l.Decode([]byte(`{"routing_key":"k","headers":{"n":["AAAA"]},"header_types":{"n":["binary"]}}`)))
	if cost := l.HeadersCost(); cost != 100*(14+16) {
		t.Errorf("cost %d", cost)
	}
	if _, _, err := l.Headers(all, 500); err == nil || !strings.Contains(err.Error(), "500 bytes in memory") {
		t.Error(err)
	}
	if _, _, err := l.Headers(func(name string) bool { return name == "n" }, 1<<10); err != nil {
		t.Error(err)
	}
}

// hardHeaders are tables of every type, with the values that are hard to write down.
func hardHeaders() (all [][]byte) {
	field, long := brokertest.Field, brokertest.Long
	hard := slices.Concat(field("deep", 'A', brokertest.Nested(amqpvalue.MaxDepth, 'V')...), field("base64:x", 'S', long("<b>é</b>\u2028")...),
		field("\xff\xfe", 'S', long("a\xff\x00b")...), field("", 'x', long("\x00\xff")...), field("f", 'f', 0, 0, 0, 1))
	for i, n := range []float64{1, -1, 1.1, 1 << 62, 1e20, 1e300, math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1)} {
		hard = append(hard, field(fmt.Sprint("float ", i), 'd', binary.BigEndian.AppendUint64(nil, math.Float64bits(n))...)...)
	}
	for i, at := range []uint64{0, 1 << 60, math.MaxInt64, 1 << 63} {
		hard = append(hard, field(fmt.Sprint("time ", i), 'T', binary.BigEndian.AppendUint64(nil, at)...)...)
	}
	r := rand.New(rand.NewPCG(1, 0))
	for range 50 {
		all = append(all, brokertest.RandomTable(r))
	}
	return append(all, hard)
}

// FuzzAppendLine writes any message that a broker can deliver and reads it again.
func FuzzAppendLine(f *testing.F) {
	f.Add("x", "k", "application/json", "m", []byte(`{"a":[1]}`), []byte("\x01aI\x00\x00\x00\x05\x01bS\x00\x00\x00\x01x\x01\xffx\x00\x00\x00\x01y"), int64(5), uint8(2))
	f.Add("", "\xff", "", "é\x00", []byte("\x00\"\\\n\u2028"), []byte("\x01lA\x00\x00\x00\x07T\x00\x00\x00\x00\x00\x00\x00\x05V\x01tF\x00\x00\x00\x05\x02\xff\xfeVx"), int64(math.MaxInt64), uint8(0))
	for _, headers := range hardHeaders() {
		f.Add("\xff", "k", "", "m", []byte("\xff"), headers, int64(-5), uint8(1))
	}
	f.Fuzz(func(t *testing.T, exchange, key, contentType, text string, body, headers []byte, at int64, small uint8) {
		short := func(s string) string { return s[:min(len(s), amqpvalue.ShortMax)] }
		table, whole := amqpvalue.Decode(headers)
		if size, err := amqpvalue.TableSize(table); !whole || err != nil || size > 128<<10 {
			return
		}
		p := amqp.Publishing{
			Headers: table, ContentType: short(contentType), MessageId: short(text), Type: short(key), UserId: short(text), DeliveryMode: small, Priority: small, Body: body,
			Timestamp: time.Unix(at, 0),
		}
		if p.Timestamp.IsZero() { // absent
			return
		}
		line := amqpvalue.AppendLine(nil, short(exchange), short(key), &p)
		if !json.Valid(line) || bytes.ContainsAny(line, "\r\n") || len(line) > 3*len(body)/2+8*len(headers)+10*amqpvalue.ShortMax*6 {
			t.Fatalf("%d bytes: %s", len(line), line)
		}
		l, got, err := read(line)
		if err != nil || !equal(t, p, got) || *l.Exchange != short(exchange) || l.RoutingKey != short(key) {
			t.Fatalf("%+v, %v\nbecame\n%+v\nin %s", p, err, got, line)
		}
		if again := amqpvalue.AppendLine(nil, short(exchange), short(key), &got); !reflect.DeepEqual(again, line) {
			t.Fatalf("%s\nbecame\n%s", line, again)
		}
	})
}

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
