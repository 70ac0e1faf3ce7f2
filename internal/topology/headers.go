package topology

import (
	"math"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
)

// Headers that keep what a republished message cannot carry as a property or would act on the broker.
const (
	headerOriginalExpiration = "x-original-expiration"
	headerOriginalUserID     = "x-original-user-id"
	headerOriginalReplyTo    = "x-original-reply-to"
	headerOriginalCC         = "x-original-cc"
	headerOriginalBCC        = "x-original-bcc"
)

// brokerRecord reports whether a header is a broker's own record of where a message has been, and how often.
func brokerRecord(key string) bool {
	return deathRecord(key) || key == message.HeaderDeliveryCount || key == message.HeaderAcquiredCount
}

func deathRecord(key string) bool {
	return key == message.HeaderDeath ||
		strings.HasPrefix(key, "x-first-death-") || strings.HasPrefix(key, "x-last-death-")
}

// senderSelected reports whether a header makes the broker send a second copy elsewhere.
func senderSelected(key string) bool { return key == "CC" || key == "BCC" }

// copyHeaders copies m's header table without what drop names and without what cannot be published again. Nested
// values are shared with the original: they are not changed.
func copyHeaders(m *message.Message, drop func(key string) bool) amqp.Table {
	h := make(amqp.Table, len(m.Headers)+16) // has room for the headers of ours
	for k, v := range m.Headers {
		if len(k) <= amqpvalue.ShortMax && !drop(k) {
			h[k] = v
		}
	}
	return h
}

func count(n int) int32 { return int32(min(max(n, 0), math.MaxInt32)) } // #nosec G115 -- bounded

// setHistory writes down what the message has been through.
func setHistory(h amqp.Table, m *message.Message) {
	h[message.HeaderOriginalExchange], h[message.HeaderOriginalRoutingKey] = m.Exchange, m.RoutingKey
	keepDropped(h, m)
	keepDead(h, m)
}

// keepDropped writes down what publishing and copyHeaders leave out. What an earlier republish wrote stays when the
// message has nothing newer to say.
func keepDropped(h amqp.Table, m *message.Message) {
	if m.Expiration != "" {
		h[headerOriginalExpiration] = m.Expiration
	}
	if m.UserID != "" {
		h[headerOriginalUserID] = m.UserID
	}
	if m.ReplyTo == message.DirectReply {
		h[headerOriginalReplyTo] = m.ReplyTo
	}
	for _, keys := range [...][2]string{{"CC", headerOriginalCC}, {"BCC", headerOriginalBCC}} {
		if v, ok := m.Headers[keys[0]]; ok {
			h[keys[1]] = v
		}
	}
}

// keepDead is keepDropped for what a broker has taken off when it dead-lettered the message, and written into x-death.
func keepDead(h amqp.Table, m *message.Message) {
	deaths, _ := m.Headers[message.HeaderDeath].([]any)
	for _, e := range deaths {
		death, _ := e.(amqp.Table)
		if s, ok := death["original-expiration"].(string); ok && h[headerOriginalExpiration] == nil {
			h[headerOriginalExpiration] = s
		}
		if keys, _ := death["routing-keys"].([]any); len(keys) > 1 && h[headerOriginalCC] == nil {
			h[headerOriginalCC] = keys[1:] // up to 3.x, where CC itself goes
		}
	}
}

// publication is m with other headers, on a route.
func (r Route) publication(kind string, m *message.Message, h amqp.Table) *message.Publication {
	return &message.Publication{Kind: kind, Exchange: r.Exchange, Key: r.Key, Msg: publishing(m, h)}
}

// publishing copies m's properties and body. user-id is left out because the broker only accepts our own, expiration
// because it would cut the wait short or take the message out of the dead-letter queue, and the reply-to
// message.DirectReply, which AMQP 1.0 can bring, because the broker would refuse it.
func publishing(m *message.Message, h amqp.Table) amqp.Publishing {
	pub := amqp.Publishing{
		Headers: h, Body: m.Body, DeliveryMode: amqp.Persistent,
		ContentType: m.ContentType, ContentEncoding: m.ContentEncoding, Priority: m.Priority,
		CorrelationId: m.CorrelationID, ReplyTo: m.ReplyTo, MessageId: m.MessageID,
		Timestamp: m.Timestamp, Type: m.Type, AppId: m.AppID,
	}
	if m.ReplyTo == message.DirectReply {
		pub.ReplyTo = ""
	}
	return pub
}
