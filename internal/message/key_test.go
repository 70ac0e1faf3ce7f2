package message

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestKey(t *testing.T) {
	t.Parallel()
	m := &Message{RoutingKey: "order.created", CorrelationID: "c-1", Headers: amqp.Table{
		"customer": "c 1", "number": int32(7), "bytes": []byte("b"), "void": nil, "long": []any{strings.Repeat("x", 2*maxKey)},
		"list": []any{"a", int64(1)},
	}}
	for by, want := range map[string]string{
		"routing-key": "order.created", "correlation-id": "c-1", "queue": "queue", "header:customer": "c 1", "header:number": "7",
		"header:bytes": "b", "header:void": "", "header:absent": "", "header:list": `["a",1]`, "header:long": `["` + strings.Repeat("x", maxKey-2),
	} {
		if got := m.Key(by); got != want {
			t.Errorf("%s: %q, want %q", by, got, want)
		}
	}
	if got := (&Message{}).Key("correlation-id"); got != "" {
		t.Errorf("the key of a message without it is %q", got)
	}
}
