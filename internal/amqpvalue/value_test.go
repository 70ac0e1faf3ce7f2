package amqpvalue_test

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/testkit/must"
)

func TestTypedForm(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]any{
		`{"type":"void"}`: nil, `{"type":"int8","value":-1}`: int8(-1), `{"type":"int64","value":"9007199254740993"}`: int64(1<<53 + 1), `{"type":"float32","value":1.1}`: float32(1.1),
		`{"type":"float64","value":"NaN"}`: math.NaN(), `{"type":"decimal","value":{"scale":2,"value":-5}}`: amqp.Decimal{Scale: 2, Value: -5}, `{"type":"binary","value":"AP8="}`: []byte{0, 255},
		`{"type":"string","base64":"/w=="}`: "\xff", `{"type":"string","value":"\u003c"}`: "<", `{"type":"timestamp","value":5}`: time.Unix(5, 0),
		`{"type":"array","value":[{"type":"void"}]}`: []any{nil}, `{"type":"table","value":{"base64:/w==":{"type":"bool","value":true}}}`: amqp.Table{"\xff": true},
	} {
		if got := string(must.Get(json.Marshal(amqpvalue.TypedTable{"v": v}))(t)); got != `{"v":`+want+"}" {
			t.Errorf("%#v became %s, want %s", v, got, want)
		}
	}
}

func TestProperties(t *testing.T) {
	t.Parallel()
	p := amqpvalue.Properties{
		ContentType: "text/plain", ContentEncoding: "gzip", DeliveryMode: 2, Priority: 4, CorrelationId: "\xff", ReplyTo: "r", Expiration: "60000", MessageId: "m",
		Timestamp: time.Unix(5, 0).UTC(), Type: "<t>", UserId: "u", AppId: "a",
	}
	const want = `{"content_type":"text/plain","content_encoding":"gzip","delivery_mode":2,"priority":4,"correlation_id":{"base64":"/w=="},"reply_to":"r",` +
		`"expiration":"60000","message_id":"m","timestamp":"1970-01-01T00:00:05Z","type":"\u003ct\u003e","user_id":"u","app_id":"a"}`
	b := must.Get(json.Marshal(p))(t)
	if string(b) != want {
		t.Errorf("%s, want %s", b, want)
	}
	var back amqp.Publishing
	if err := amqpvalue.SetProperties(&back, b); err != nil || !reflect.DeepEqual(amqpvalue.Properties(back), p) {
		t.Errorf("%+v, %v", back, err)
	}
	if b := must.Get(json.Marshal(amqpvalue.Properties{}))(t); string(b) != "{}" {
		t.Errorf("%s", b)
	}
	if d := (amqp.Delivery{MessageId: "m", Priority: 4}); !reflect.DeepEqual(amqpvalue.PropertiesOf(&d), amqpvalue.Properties{MessageId: "m", Priority: 4}) {
		t.Errorf("%+v", amqpvalue.PropertiesOf(&d))
	}
}

// TestSetProperty: every form that some document has is read.
func TestSetProperty(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 31, 11, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		text string
		want amqp.Publishing
		err  string
	}{
		{text: `{"priority":9,"expiration":60000,"timestamp":"2026-01-31T12:00:00.9+01:00"}`, want: amqp.Publishing{Priority: 9, Expiration: "60000", Timestamp: at}},
		{text: `{"priority":"9","expiration":"0","timestamp":-5}`, want: amqp.Publishing{Priority: 9, Expiration: "0", Timestamp: time.Unix(-5, 0)}},
		{text: `{"priority":null,"expiration":"","timestamp":null,"type":null,"app_id":""}`},
		{text: `{"type":{"base64":"/w=="}}`, want: amqp.Publishing{Type: "\xff"}},
		{text: `null`},
		{text: `[]`, err: "not a JSON object"},
		{text: `{"colour":1}`, err: `property "colour" is not a property`},
		{text: `{"type":7}`, err: `property "type" is not a string`},
		{text: `{"type":{"base64":"!"}}`, err: "base64"},
		{text: `{"type":{"base64":"AA==","x":1}}`, err: "is not a string"},
		{text: `{"type":"` + strings.Repeat("x", 256) + `"}`, err: "has 256 bytes; AMQP allows 255"},
		{text: `{"priority":256}`, err: "from 0 to 255"},
		{text: `{"priority":-1}`, err: "from 0 to 255"},
		{text: `{"expiration":-1}`, err: "milliseconds"},
		{text: `{"expiration":"abc"}`, err: "milliseconds"},
		{text: `{"expiration":4294967296}`, err: "milliseconds"},
		{text: `{"timestamp":"5"}`, want: amqp.Publishing{Timestamp: time.Unix(5, 0)}},
		{text: `{"timestamp":"5.9"}`, want: amqp.Publishing{Timestamp: time.Unix(5, 0)}},
		{text: `{"timestamp":1772000000123}`, want: amqp.Publishing{Timestamp: time.UnixMilli(1772000000123).UTC()}},
		{text: `{"timestamp":"0x10p2"}`, err: "must be a time"},
		{text: `{"timestamp":5.9}`, want: amqp.Publishing{Timestamp: time.Unix(5, 0)}},
		{text: `{"timestamp":"2026-01-31 11:00:00.123+00"}`, want: amqp.Publishing{Timestamp: at}},
		{text: `{"timestamp":"2026-01-31 12:00:00+01:00"}`, want: amqp.Publishing{Timestamp: at}},
		{text: `{"timestamp":"2026-01-31T12:00:00+01"}`, want: amqp.Publishing{Timestamp: at}},
		{text: `{"timestamp":"2026-01-31 12:00:00"}`, err: "must be a time"}, // of which zone?
		{text: `{"timestamp":"yesterday"}`, err: "must be a time"},
		{text: `{"timestamp":true}`, err: "must be a time"},
		{text: `{"timestamp":1e300}`, err: "must be a time"},
		{text: `{"timestamp":"NaN"}`, err: "must be a time"},
		{text: `{"timestamp":"0001-01-01T00:00:00Z"}`, err: "AMQP cannot carry"},
	} {
		var got amqp.Publishing
		err := amqpvalue.SetProperties(&got, []byte(c.text))
		if c.err == "" && (err != nil || !reflect.DeepEqual(got, c.want)) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%.80s: %+v, %v", c.text, got, err)
		}
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v    any
		want string
	}{
		{nil, ""}, {true, "true"}, {int8(-8), "-8"}, {uint64(math.MaxUint64), "18446744073709551615"}, {float32(1.1), "1.1"}, {1e21, "1e+21"}, {math.Inf(-1), "-Infinity"},
		{"a\xff", "a\uFFFD"}, {[]byte("a b"), "a b"}, {[]byte{1, 255}, "Af8="}, {amqp.Decimal{Scale: 2, Value: -5}, "-0.05"}, {amqp.Decimal{Value: 7}, "7"},
		{time.Unix(0, 0), "1970-01-01T00:00:00Z"}, {time.Unix(1<<60, 0), "1152921504606846976"}, {struct{}{}, "{}"},
		{amqp.Table{"k": []any{int64(1), "<\"\n\x7f\xff>", nil, math.NaN(), time.Unix(0, 0), []byte{255}, []byte("x"), 1.5}}, `{"k":[1,"<\"\n` + "\x7f\uFFFD" + `>",null,"NaN","1970-01-01T00:00:00Z","/w==","x",1.5]}`},
	} {
		if got := amqpvalue.Text(c.v); got != c.want {
			t.Errorf("%#v became %s, want %s", c.v, got, c.want)
		}
	}
}

// TestAppendTextLimit: what is too long or too deep is given up early.
func TestAppendTextLimit(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 11)
	for _, v := range []any{long, []byte(long), []any{long}, []any{"xxxxx", "xxxxx"}, amqp.Table{long: 1}, make([]any, 5000), amqp.Table{"a": 1, "b": 2, "c": 3}, []any{[]byte(long + "\xff")}} {
		if b, ok := amqpvalue.AppendText([]byte("before"), v, 10); ok || len(b) > 60 {
			t.Errorf("%v became %s", v, b)
		}
	}
	if b, ok := amqpvalue.AppendText([]byte("before"), []any{"xxxxxx"}, 10); !ok || string(b) != `before["xxxxxx"]` {
		t.Errorf("%s", b)
	}
	for depth, fits := range map[int]bool{32: true, 33: false} {
		if _, ok := amqpvalue.AppendText(nil, []any{nested(depth)}, 1000); ok != fits {
			t.Errorf("%d deep: %v", depth, ok)
		}
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	for want, values := range map[int][]any{
		7:             {int8(7), uint8(7), int16(7), uint16(7), int32(7), uint32(7), int64(7), uint64(7), 7},
		math.MaxInt32: {int64(math.MaxInt64), uint64(math.MaxUint64), uint32(math.MaxUint32)},
		0:             {nil, -1, int8(-1), 1.0, "1", true},
	} {
		for _, v := range values {
			if n, ok := amqpvalue.Count(v); n != want || ok != (want > 0) {
				t.Errorf("%T: %d %v", v, n, ok)
			}
		}
	}
}
