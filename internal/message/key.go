package message

import (
	"strings"

	"sidecar/internal/amqpvalue"
)

const maxKey = 1 << 10 // bytes of a key: of a longer text only the beginning counts

// Key returns the key by which a message is ordered, "" without one: by is "routing-key", "correlation-id", "queue"
// (the same key for all messages) or "header:" and a name.
func (m *Message) Key(by string) string {
	switch by {
	case "routing-key":
		return m.RoutingKey
	case "correlation-id":
		return m.CorrelationID
	case "queue":
		return by
	}
	text, _ := amqpvalue.AppendText(nil, m.Headers[strings.TrimPrefix(by, "header:")], maxKey)
	return string(text[:min(len(text), maxKey)])
}
