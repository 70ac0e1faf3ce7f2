package topology

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

// TestImpossibleKeysAreLeftOut: a key over 255 bytes cannot have come over the wire, and would end the connection.
func TestImpossibleKeysAreLeftOut(t *testing.T) {
	t.Parallel()
	m := &message.Message{Headers: amqp.Table{strings.Repeat("k", 256): 1, strings.Repeat("k", 255): 1, "": 1}}
	h := copyHeaders(m, func(string) bool { return false })
	if len(h) != 2 {
		t.Errorf("%d headers", len(h))
	}
}
