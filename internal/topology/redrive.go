package topology

import (
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
)

// Headers of a message that was moved from the dead-letter queue back into the flow.
const (
	headerRedrivenAt   = "x-redriven-at"   // RFC 3339, UTC
	headerRedrivenBy   = "x-redriven-by"   // who asked for it
	headerRedrivenFrom = "x-redriven-from" // the dead-letter queue

	maxActor = 255 // bytes of x-redriven-by
)

// Redriving says who moves a message back, and how.
type Redriving struct {
	By    string
	At    time.Time
	Count int    // how often it has been moved before
	Reply string // see message.HeaderReply; "" asks for no verdict
	// To is another queue that the message goes to, by the default exchange, as one that was never tried; "" is the
	// service's own. Its consumer does not get what only this service reads.
	To string
	// Plain, with To, leaves out x-original-* and x-redriven-*. Otherwise they are text: some consumers take no others.
	Plain bool
	// Reset makes the message one that was never tried. Where it was first published stays known.
	Reset bool
}

// RedrivePublication is d, a message that was parked, on its way back into the flow. fits is false when its headers do
// not fit a frame any more.
//
// Without Reset it goes on counting: x-final-retry-count says what it has used up, also to brokers that ignore the
// x-death of a publisher.
func (p *Plan) RedrivePublication(d *amqp.Delivery, r Redriving) (pub *message.Publication, fits bool) {
	route := p.Redrive
	var m message.Message
	m.FromDelivery(d, p.Queue, p.MaxRetries)
	if r.To != "" {
		r.Reset, route = true, Route{Key: r.To}
	}
	h := copyHeaders(&m, func(key string) bool { return p.redriveDrops(&r, key) })
	keepDropped(h, &m)
	keepDead(h, &m)
	if attempts, ok := m.Headers[message.HeaderDeliveryCount].(string); ok && !r.Reset {
		h[message.HeaderDeliveryCount] = attempts // the count of another consumer, not the broker's
	}
	if r.Reset && r.To == "" {
		h[message.HeaderRetryCount] = int32(0) // the origin is only read from messages with a count
	}
	if r.Reset && (m.Exchange != d.Exchange || m.RoutingKey != d.RoutingKey) { // else it is not known
		h[message.HeaderOriginalExchange], h[message.HeaderOriginalRoutingKey] = m.Exchange, m.RoutingKey
	}
	h[headerRedrivenAt] = r.At.UTC().Format(finalAtFmt)
	h[headerRedrivenBy] = plainText(r.By, maxActor)
	h[message.HeaderRedrivenCount] = count(max(r.Count, 0) + 1)
	h[headerRedrivenFrom] = p.Park.Queue
	if r.Reply != "" {
		h[message.HeaderReply] = r.Reply
	}
	for k, v := range h {
		switch _, isText := v.(string); {
		case r.To == "" || !message.Bookkeeping(k):
		case r.Plain:
			delete(h, k)
		case !isText:
			h[k] = amqpvalue.Text(v)
		}
	}
	pub = route.publication(message.KindRedrive, &m, h)
	return pub, !overweight(&pub.Msg, 0)
}

// redriveDrops reports whether a redriven message loses the header.
func (p *Plan) redriveDrops(r *Redriving, key string) bool {
	return brokerRecord(key) && (r.Reset || !deathRecord(key)) || senderSelected(key) || key == message.HeaderReply ||
		r.Reset && (strings.HasPrefix(key, headerFinalPrefix) || strings.HasPrefix(key, "x-retry-")) ||
		r.To != "" && (key == message.HeaderOriginalQueue || key == p.CountHeader)
}

// RestorePublication is d on its way into the dead-letter queue as it is: one that was taken out of it before. What
// would act on the broker becomes a header.
func (p *Plan) RestorePublication(d *amqp.Delivery) (pub *message.Publication, fits bool) {
	var m message.Message
	m.FromDelivery(d, p.Queue, p.MaxRetries)
	h := copyHeaders(&m, func(key string) bool { return brokerRecord(key) && !deathRecord(key) || senderSelected(key) })
	m.Expiration = "" // it stays a property, and x-death is about queues that the message left long ago
	keepDropped(h, &m)
	pub = p.Park.publication(message.KindOther, &m, h)
	pub.Msg.Expiration = d.Expiration
	if len(h) == 0 {
		pub.Msg.Headers = nil
	}
	return pub, !overweight(&pub.Msg, 0)
}

// Owns reports whether a parked message that comes from queue is this service's to move. queue is "" if unknown:
// then it is, unless several services park in the same queue.
func (p *Plan) Owns(queue string) bool {
	if queue == "" {
		q := p.queue(p.Park.Queue)
		return q == nil || !q.Shared
	}
	return p.queue(queue) != nil
}
