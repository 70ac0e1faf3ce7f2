package deadletter

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
	"unicode"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

func TestRate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{"20/s": 20, "120/m": 2, "7200/h": 2, "5": 5, "0.5": 0.5, "1e3/s": 1000} {
		var r Rate
		if err := r.UnmarshalText([]byte(text)); err != nil || r.perSecond() != want {
			t.Errorf("%s: %v %v", text, r.perSecond(), err)
		}
	}
	for _, text := range []string{"", "x", "20/d", "0", "-1/s", "NaN", "Inf", "20/", "/s", "20/s/s", "1e-9"} {
		if err := new(Rate).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is a rate", text)
		}
	}
}

// everything holds a value of every type that AMQP has, and some that are hard to write down.
func everything() amqp.Table {
	return amqp.Table{
		"void": nil, "yes": true, "i8": int8(-8), "u8": uint8(200), "i16": int16(-300), "u16": uint16(60000), "i32": int32(-70000), "u32": uint32(4e9),
		"i64": int64(math.MinInt64), "max": int64(math.MaxInt64), "f32": float32(1.1), "f64": 1.1, "nan": math.NaN(), "inf": math.Inf(-1), "zero": math.Copysign(0, -1),
		"decimal": amqp.Decimal{Scale: 2, Value: -12345}, "text": "<b>é</b>\u2028", "broken": "a\xff\x00b", "bytes": []byte{0, 255, 1}, "none": []byte{}, "time": time.Unix(1700000000, 0),
		"far": time.Unix(1<<60, 0), "array": []any{int32(1), "x", []any{}, amqp.Table{"k": nil}}, "table": amqp.Table{"n": amqp.Table{"n": int64(1)}, "empty": amqp.Table{}},
		"base64:x": "key", "\xff\xfe": "key", "": "no key",
	}
}

// TestExportsAreHarmless: no byte of a line acts on a terminal, and the message is the same.
func TestExportsAreHarmless(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ contentType, body, want string }{
		{"application/json", `{"a":"é"}`, `"body":{"a":"é"}`},
		{"application/json", "{\"a\":\"\u202e\"}", `"body":"{\"a\":\"\u202e\"}"`},
		{"application/json", "{\t}", `"body":"{\t}"`},
		{"application/json", "[\t1]", `"body":"[\t1]"`},
		{"text/plain", "\u009b\u2028plain text", `"body":"\u009b\u2028plain text"`},
		{"", strings.Repeat("x", maxText), `"body":"xxx`},
		{"", strings.Repeat("x", maxText+1), `"body_base64":"eHh4`},
	} {
		d := amqp.Delivery{
			ContentType: c.contentType, MessageId: "\x1b\u202e", Headers: amqp.Table{"\u202e": "\u009b", "\xff": "\xff"}, Body: []byte(c.body),
			ContentEncoding: "gzip", DeliveryMode: 2, Priority: 4, CorrelationId: "\xff", ReplyTo: "r", Expiration: "60000",
			Timestamp: time.Unix(5, 0), Type: "t", UserId: "u", AppId: "a",
		}
		line := written(t, d)
		if !strings.Contains(line, c.want) || strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%.300q, want %s", line, c.want)
		}
		got := must.Get(readLine([]byte(line)))(t)
		if (&Message{Properties: got}).Ref() != (&Message{Properties: d}).Ref() {
			t.Errorf("%.300q became %+v", line, got)
		}
	}
}

func TestShowBody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body, format, text string
		limit                    int
		truncated                bool
	}{
		{"empty", "", "empty", "", 10, false},
		{"json", `{"a":[1]}`, "json", "{\n  \"a\": [\n    1\n  ]\n}", 100, false},
		{"text", "hé\tllo", "text", "hé\tllo", 100, false},
		{"a cut through a rune", "aé", "text", "a", 2, true},
		{"json that is cut", `{"a":1}`, "text", `{"a"`, 4, true},
		{"bytes", "\x00\xff", "hex", "00000000  00 ff                                             |..|\n", 100, false},
		{"terminal control", "\x1b[31mred", "hex", "00000000  1b 5b 33 31 6d 72 65 64                           |.[31mred|\n", 100, false},
		{"json with broken text", "\"\xff\"", "json", "\"\uFFFD\"", 100, false},
	} {
		b := showBody([]byte(c.body), c.limit)
		if b.Format != c.format || b.Text != c.text || b.Truncated != c.truncated || b.Size != len(c.body) {
			t.Errorf("%s: %+v", c.name, b)
		}
	}
	deep := bytes.Repeat([]byte("["), 20000)
	deep = append(deep, bytes.Repeat([]byte("]"), 20000)...)
	if b := showBody(deep, 64<<10); len(b.Text) > 5*64<<10 {
		t.Errorf("%d bytes of %d", len(b.Text), len(deep))
	}
}

// TestTimesThatNoCalendarHas: whatever a publisher wrote, what is shown can be written as JSON.
func TestTimesThatNoCalendarHas(t *testing.T) {
	t.Parallel()
	q := New(Options{}, Owner{Plan: must.Get(topology.Build(topology.Options{Service: "svc"}))(t)})[0]
	for _, headers := range []amqp.Table{
		{"x-final-at": "9999-12-31T23:59:59-23:59", "x-final-reason": "too_large"},
		{"x-death": []any{amqp.Table{"queue": "q", "time": time.Unix(1<<55, 0)}}},
		{"x-death": []any{amqp.Table{"queue": "q", "time": time.Unix(-1<<55, 0)}}},
	} {
		m := q.parse(&broker.Delivery{Delivery: amqp.Delivery{Headers: headers}}, 1)
		if _, err := json.Marshal(m.Full(10)); err != nil || !m.ParkedAt.IsZero() {
			t.Errorf("%+v %v", m.Facts, err)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add([]byte(written(f, amqp.Delivery{MessageId: "m", Headers: everything(), Body: []byte{0, 1, 2}})))
	f.Add([]byte(`{"routing_key":"k","message_id":"m","timestamp":5,"headers":{"a":1,"b":[1.5]},"header_types":{"a":"int32","b":["float32"]},"body":{"a":"\ud800"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		d, err := readLine(bytes.Clone(line))
		if err != nil {
			return
		}
		var out bytes.Buffer
		w := bufio.NewWriter(&out)
		m := Message{Properties: d}
		_ = m.write(w)
		_ = w.Flush()
		back, err := readLine(bytes.Clone(out.Bytes()))
		again := Message{Properties: back}
		if err != nil || again.Ref() != m.Ref() {
			t.Errorf("%v\n%s", err, &out)
		}
	})
}

// TestRefOfSimilarMessages: what one message has as a header another cannot have in its body.
func TestRefOfSimilarMessages(t *testing.T) {
	t.Parallel()
	a := Message{Properties: amqp.Delivery{Headers: amqp.Table{"h": "v"}, Body: []byte("abc")}}
	b := Message{Properties: amqp.Delivery{Body: []byte(`,"headers":{"h":"v"}abc`)}}
	if a.Ref() == b.Ref() {
		t.Errorf("both are %s", a.Ref())
	}
}
