package message

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestReply(t *testing.T) {
	t.Parallel()
	const address = "amq.rabbitmq.reply-to.g1h2.x=="
	for name, c := range map[string]struct {
		value          any
		address, token string
	}{
		"not asked for":      {nil, "", ""},
		"asked":              {ReplyTo(address, "7"), address, "7"},
		"another queue":      {ReplyTo("victim", "7"), "", ""},
		"no text":            {int32(1), "", ""},
		"no token":           {address, "", ""},
		"an endless address": {ReplyTo(address+strings.Repeat("x", 300), "7"), "", ""},
		"an endless token":   {ReplyTo(address, strings.Repeat("7", 100)), "", ""},
	} {
		if a, token := Reply(amqp.Table{HeaderReply: c.value}); a != c.address || token != c.token {
			t.Errorf("%s: %q %q", name, a, token)
		}
	}
	if a, _ := Reply(nil); a != "" {
		t.Error("an address without headers")
	}
}
