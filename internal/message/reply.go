package message

import (
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// HeaderReply asks for the verdict on a redriven message: an address, replySeparator and a token for the message.
const HeaderReply = "x-redriven-reply-to"

// DirectReply is the broker's name for direct reply-to. As a reply-to it is only valid on a channel that consumes from
// it: on any other one the broker closes the channel over the message.
const DirectReply = "amq.rabbitmq.reply-to"

const (
	// replyPrefix begins every address at which the broker delivers to a waiting client and keeps nothing. Headers are the
	// publisher's to forge: no other place is ever written to.
	replyPrefix    = DirectReply + "."
	replySeparator = "#"
)

// MaxCanary is how many redriven messages may wait for their verdicts at once.
const MaxCanary = 1000

// VerdictReply is the JSON body of a reply: the outcome of a message, without any of its content.
type VerdictReply struct {
	MessageID string `json:"message_id,omitempty"`
	Outcome   string `json:"outcome"` // ack, retry, park, discard
	Reason    string `json:"reason"`
	Status    int    `json:"status,omitempty"` // of the app's answer, if there was one
}

// ReplyTo returns a value of HeaderReply.
func ReplyTo(address, token string) string { return address + replySeparator + token }

// Reply returns the parts of HeaderReply; the address is empty if the header is missing or invalid.
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
