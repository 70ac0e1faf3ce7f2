package amqpvalue

import (
	"bytes"
	"fmt"
	"testing"
	"unicode/utf8"
)

// FuzzPlainLine: a line that decodePlain reads is the same message to decode, which reads any line.
func FuzzPlainLine(f *testing.F) {
	for _, line := range []string{
		`{"routing_key":"k","body":"text","content_type":"text/plain","message_id":"m"}`, ` { "routing_key" : "" , "body" : {"id":[42,{}]} } `,
		`{"routing_key":"k","body":{"id":42},"content_type":"a/b","headers":{"a":1},"header_types":{"a":"int8"}}`,
		`{"routing_key":"k","exchange":"x","body_base64":"AP8=","priority":4,"expiration":60000,"timestamp":1234}`,
		`{"routing_key":"k","delivery":{"attempt":1},"user_id":"u","delivery_mode":2,"timestamp":"2026-07-01T12:00:00Z"}`,
		`{"routing_key":"k","body":"","body_base64":""}`, `{"routing_key":"k","routing_key":"k"}`, `{"routing_key":"k","priority":256}`,
		`{"routing_key":"k","priority":01}`, `{"routing_key":"k","body":1}`, `{"routing_key":"k","body":"a` + "\x01" + `b"}`, `{"routing_key":"k"}x`, "{\"routing_key\":\"k\"}\x00",
		`{"routing_key":"k","headers":{"a":"\ud800"}}`, `{"body":"x"}`, `{"routing_key":"k",}`, `{,"routing_key":"k"}`, `{"routing_key":"k" "body":"x"}`, `{}`, ``, `{"routing_key":"k","body":[1,}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var plain, any Line
		if !utf8.Valid(line) || !plain.decodePlain(bytes.Clone(line), []string{"user_id", "delivery_mode"}) {
			return
		}
		if err := any.decode(bytes.Clone(line), []string{"user_id", "delivery_mode"}); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		got, want := fmt.Sprintf("%+v", described(&plain)), fmt.Sprintf("%+v", described(&any))
		if got != want || !bytes.Equal(plain.Msg.Body, any.Msg.Body) {
			t.Fatalf("%q: %s, want %s", line, got, want)
		}
	})
}

// described is what a line came to, as texts.
func described(l *Line) []any {
	exchange := "none"
	if l.Exchange != nil {
		exchange = "exchange " + *l.Exchange
	}
	return []any{exchange, l.RoutingKey, l.Msg, l.Msg.Body == nil, l.Base64 == nil, string(l.Base64), l.Invalid, string(l.headers), string(l.types), l.typed}
}

// TestPlainLines: lines as programs write them take the short way.
func TestPlainLines(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		`{"routing_key":"k","body":"text with UTF-8: ä","content_type":"text/plain","message_id":"m","priority":4}`,
		`{"routing_key": "k", "body": {"id": 42, "text": "a\nb"}, "headers": {"a": 1}}`, `{"routing_key":"k","body_base64":"AP8="}`,
	} {
		if l := (Line{}); !l.decodePlain([]byte(line), nil) {
			t.Error(line)
		}
	}
}
