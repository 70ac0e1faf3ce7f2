package topology

import (
	"math"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/message"
)

// retryPublication is m on its way to a wait queue. retries is its count at the next delivery: it is in x-retry-count,
// and x-death is left out because brokers differ in whether they continue a copied one.
func (p *Plan) retryPublication(m *message.Message, w WaitPath, retries int) *broker.Publication {
	h := copyHeaders(m, func(key string) bool { return bookkeeping(key) || senderSelected(key) })
	retries = min(max(retries, 0), math.MaxInt32)
	h[message.HeaderRetryCount] = int32(retries) // #nosec G115 -- bounded above
	setCrashes(h, m)
	setOrigin(h, m)
	keepDropped(h, m)
	if p.StampQueue {
		h[HeaderRetryQueue] = p.Queue
	}
	if p.CountHeader != "" {
		h[p.CountHeader] = strconv.Itoa(retries + 1)
	}
	return &broker.Publication{Kind: kindRetry, Exchange: w.Exchange, Key: w.Key, Msg: publishing(m, h)}
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
