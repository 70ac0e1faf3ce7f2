package deadletter

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/broker"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// Message is a parked message as people ask for it. Everything but Body and Headers is text and numbers of its own;
// those two are the delivery's memory and valid until the visit that was given the message returns.
type Message struct {
	Position  int    // from 1, from the head of the queue
	MessageID string // the property; "" when absent
	Reason    string // x-final-reason; for what the broker has dead-lettered itself: "broker:" and its own reason; else ""
	Status    int    // x-final-status-code; 0 when absent
	Error     string // x-final-error
	Detail    string // x-final-detail

	ProblemType, ProblemTitle, ProblemDetail string // x-final-problem-*

	RetryCount   int       // x-final-retry-count, or what the history says
	RedriveCount int       // x-redriven-count
	ParkedAt     time.Time // x-final-at, or the broker's last dead-lettering; zero if unknown

	OriginalQueue, OriginalExchange string
	RoutingKey                      string // of its first publish, if known
	ContentType                     string
	Size                            int  // of the body, in bytes
	Foreign                         bool // another service's, in a queue that services share: never acted on

	Unread error // ErrUnread: neither memory nor a file could take its body; headers may be missing, too

	Properties amqp.Delivery // all of it as delivered; Headers and Body included
}

// read makes a Message of a delivery.
func (q *Queue) read(d *broker.Delivery, position int) Message {
	d.DecodeHeaders()
	h := d.Headers
	var m message.Message
	m.FromDelivery(&d.Delivery, q.o.Plan.Queue, q.o.Plan.MaxRetries)
	p := Message{
		Position: position, MessageID: d.MessageId,
		Reason: text(h, topology.HeaderFinalReason), Status: number(h, topology.HeaderFinalStatusCode),
		Error: text(h, topology.HeaderFinalError), Detail: text(h, topology.HeaderFinalDetail),
		ProblemType: text(h, topology.HeaderFinalProblemType), ProblemTitle: text(h, topology.HeaderFinalProblemTitle),
		ProblemDetail: text(h, topology.HeaderFinalProblemDetail),
		RetryCount:    m.RetryCount, RedriveCount: number(h, topology.HeaderRedrivenCount),
		OriginalQueue:    cmp.Or(text(h, message.HeaderOriginalQueue), text(h, "x-first-death-queue")),
		OriginalExchange: m.OriginalExchange, RoutingKey: m.OriginalRoutingKey,
		ContentType: d.ContentType, Size: max(len(d.Body), int(d.Missing)), Properties: d.Delivery,
	}
	if d.Missing > 0 {
		p.Unread = fmt.Errorf("%w: %d bytes: %w", ErrUnread, d.Missing, d.MissingWhy)
	}
	if !m.HasOriginal {
		p.OriginalExchange, p.RoutingKey = d.Exchange, d.RoutingKey
	}
	if at, err := time.Parse(time.RFC3339, text(h, topology.HeaderFinalAt)); err == nil {
		p.ParkedAt = sensible(at)
	}
	if steps := p.Journey(); len(steps) > 0 && p.Reason == "" {
		p.Reason, p.ParkedAt = "broker:"+steps[0].Reason, steps[0].At
	}
	p.Foreign = !q.o.Plan.Owns(p.OriginalQueue)
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
	var steps []Step
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
		return v
	case []byte:
		return strings.ToValidUTF8(string(v), "\uFFFD")
	}
	return ""
}

// number reads any integer that fits an int32; 0 for everything else.
func number(h amqp.Table, key string) int {
	n, _ := amqpvalue.Count(h[key])
	return n
}

// refLength is the length of a Ref: 64 bits of a digest, in hexadecimal.
const refLength = 16
