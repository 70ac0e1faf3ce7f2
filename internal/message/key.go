package message

import (
	"strings"

	"sidecar/internal/amqpvalue"
)

// maxKey bounds the text of a header that is not a text, in bytes: a longer one is not a key.
const maxKey = 1 << 10

// KeyBy returns a function that returns the key by which a message is ordered: by is "routing-key", "correlation-id",
// "queue" (the same key for all) or "header:" and a name; nil for "". A message without the key has the key "".
func KeyBy(by string) func(m *Message) string {
	switch by {
	case "":
		return nil
	case "routing-key":
		return func(m *Message) string { return m.RoutingKey }
	case "correlation-id":
		return func(m *Message) string { return m.CorrelationID }
	case "queue":
		return func(*Message) string { return "queue" }
	}
	name := strings.TrimPrefix(by, "header:")
	return func(m *Message) string {
		if s, ok := m.Headers[name].(string); ok {
			return s
		}
		text, ok := amqpvalue.AppendText(nil, m.Headers[name], maxKey)
		if !ok {
			return ""
		}
		return string(text)
	}
}
