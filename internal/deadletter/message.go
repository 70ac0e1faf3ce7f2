package deadletter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/broker"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// Facts are what people ask first about a parked message. All texts are valid UTF-8 and hold none of the message's
// memory.
type Facts struct {
	Position      int    `json:"position"` // from 1, from the head of the queue
	MessageID     string `json:"message_id"`
	CorrelationID string `json:"correlation_id,omitempty"`
	// x-final-reason; for what the broker has dead-lettered itself: "broker:" and its own reason; else ""
	Reason string `json:"reason"`
	Status int    `json:"status,omitempty"` // x-final-status-code; 0 when absent
	Error  string `json:"error,omitempty"`  // x-final-error
	Detail string `json:"detail,omitempty"` // x-final-detail
	Answer string `json:"answer,omitempty"` // x-final-answer

	Problem Problem `json:"problem,omitzero"`

	RetryCount   int       `json:"retry_count"`        // x-final-retry-count, or what the history says
	RedriveCount int       `json:"redrive_count"`      // x-redriven-count
	ParkedAt     time.Time `json:"parked_at,omitzero"` // x-final-at, or the broker's last dead-lettering, in UTC

	OriginalQueue    string `json:"original_queue"`
	OriginalExchange string `json:"original_exchange"`
	RoutingKey       string `json:"routing_key"` // of its first publish, if known
	ContentType      string `json:"content_type,omitempty"`
	Size             int    `json:"size"` // of the body, in bytes
	Subscription     string `json:"subscription,omitempty"`
	Foreign          bool   `json:"foreign,omitempty"` // another service's, in a shared queue: never acted on
}

// Problem is what the app said in an RFC 9457 answer: x-final-problem-*.
type Problem struct {
	Type   string `json:"type,omitempty"`
	Title  string `json:"title,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// Message is a parked message. Its properties, with headers and body, are the delivery's memory and valid until the
// visit that was given the message returns.
type Message struct {
	Facts
	Unread     error         // ErrUnread: neither memory nor a file could take its body; headers may be missing, too
	Properties amqp.Delivery // all of it as delivered; Headers and Body included

	plan                 *topology.Plan // of its subscription
	exchange, routingKey string         // of its first publish, if known
}

// parse returns the Message of a delivery.
func (q *Queue) parse(d *broker.Delivery, position int) Message {
	d.DecodeHeaders()
	h := d.Headers
	original := cmp.Or(text(h, message.HeaderOriginalQueue), text(h, "x-first-death-queue"))
	i := slices.IndexFunc(q.Owners, func(o Owner) bool { return o.Plan.Owns(original) && (original != "" || !q.several) })
	owner := q.Owners[max(i, 0)]
	var m message.Message
	m.FromDelivery(&d.Delivery, owner.Plan.Queue, owner.Plan.MaxRetries)
	redrives, _ := message.RedriveCount(h)
	p := Message{Properties: d.Delivery, plan: owner.Plan, exchange: m.Exchange, routingKey: m.RoutingKey, Facts: Facts{
		Position: position, MessageID: valid(d.MessageId), CorrelationID: valid(d.CorrelationId),
		Reason: text(h, topology.HeaderFinalReason), Status: number(h, topology.HeaderFinalStatusCode),
		Error: text(h, topology.HeaderFinalError), Detail: text(h, topology.HeaderFinalDetail),
		Answer: text(h, topology.HeaderFinalAnswer),
		Problem: Problem{
			text(h, topology.HeaderFinalProblemType), text(h, topology.HeaderFinalProblemTitle),
			text(h, topology.HeaderFinalProblemDetail),
		},
		RetryCount: m.RetryCount, RedriveCount: redrives,
		OriginalQueue: original, Foreign: i < 0,
		OriginalExchange: valid(m.Exchange), RoutingKey: valid(m.RoutingKey),
		ContentType: valid(d.ContentType), Size: max(len(d.Body), int(d.Missing)),
	}}
	if d.Missing > 0 {
		p.Unread = fmt.Errorf("%w: %d bytes: %w", ErrUnread, d.Missing, d.MissingWhy)
	}
	if at, err := time.Parse(time.RFC3339, text(h, topology.HeaderFinalAt)); err == nil {
		p.ParkedAt = sensible(at)
	}
	if steps := p.Journey(); len(steps) > 0 && p.Reason == "" {
		p.Reason, p.ParkedAt = "broker:"+steps[0].Reason, steps[0].At
	}
	if !p.Foreign {
		p.Subscription = owner.Name
	}
	return p
}

// Step is one entry of x-death: a queue the message has left, why, and how often.
type Step struct {
	Queue       string    `json:"queue"`
	Reason      string    `json:"reason"` // rejected, expired, maxlen, delivery_limit
	Count       int       `json:"count"`
	At          time.Time `json:"at,omitzero"` // of the first time
	Exchange    string    `json:"exchange"`    // it had come through
	RoutingKeys []string  `json:"routing_keys,omitempty"`
}

// Journey returns x-death in readable form, the latest step first as the broker keeps it. Malformed entries are left
// out.
func (m *Message) Journey() []Step {
	entries, _ := m.Properties.Headers[message.HeaderDeath].([]any)
	steps := []Step{}
	for _, e := range entries {
		t, ok := e.(amqp.Table)
		if !ok {
			continue
		}
		s := Step{Queue: text(t, "queue"), Reason: text(t, "reason"), Count: number(t, "count"),
			Exchange: text(t, "exchange")}
		at, _ := t["time"].(time.Time)
		s.At = sensible(at)
		keys, _ := t["routing-keys"].([]any)
		for _, k := range keys {
			if key, ok := k.(string); ok {
				s.RoutingKeys = append(s.RoutingKeys, key)
			}
		}
		steps = append(steps, s)
	}
	return steps
}

// sensible is at, or no time at all when a publisher has made one up that no calendar has: JSON cannot write it.
func sensible(at time.Time) time.Time {
	if at = at.UTC(); at.Year() < 1 || at.Year() > 9999 {
		return time.Time{}
	}
	return at
}

// is reports whether id names the message: by its message id or by its Ref.
func (m *Message) is(id string) bool {
	return id != "" && (m.MessageID == id || len(id) == refLength && m.Ref() == id)
}

func text(h amqp.Table, key string) string {
	switch v := h[key].(type) {
	case string:
		return valid(v)
	case []byte:
		return valid(string(v))
	}
	return ""
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// number reads any integer that fits an int32; 0 for everything else.
func number(h amqp.Table, key string) int {
	n, _ := amqpvalue.Count(h[key])
	return n
}
