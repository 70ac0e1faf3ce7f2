package message

import (
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// HeaderReply asks for the verdict on a redriven message: an address, replySeparator, and a token to tell answers apart.
const HeaderReply = "x-redriven-reply-to"

// DirectReply is the broker's name for direct reply-to. As a reply-to it is only valid on a channel that consumes from it: on any
// other one the broker closes the channel over the message.
const DirectReply = "amq.rabbitmq.reply-to"

const (
	// replyPrefix begins every address at which the broker delivers to a waiting client and keeps nothing. Headers are the
	// publisher's to forge: no other place is ever written to.
	replyPrefix    = DirectReply + "."
	replySeparator = "#"
)

// ReplyTo is the value of HeaderReply.
func ReplyTo(address, token string) string { return address + replySeparator + token }

// Reply reads HeaderReply; an empty address when nobody asked, or not in the right way.
func Reply(h amqp.Table) (address, token string) {
	v, _ := h[HeaderReply].(string)
	if !strings.HasPrefix(v, replyPrefix) {
		return "", ""
	}
	at := strings.LastIndex(v, replySeparator)
	if at < 0 || at > 255 || len(v)-at > 64 {
		return "", ""
	}
	return v[:at], v[at+1:]
}
