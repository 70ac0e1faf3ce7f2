// Package topology says where messages are in the broker and how they leave: the exchanges, queues and bindings to
// declare, the ways a message waits before its retry, and the place where it is parked. A topology is a value (Plan),
// never a code path. Only Settlement turns a verdict into broker operations.
//
// It does not judge attempts; Settlement changes a verdict only where the topology cannot carry it out safely. It
// publishes and settles no message. It does not talk to the broker, topology/declare does.
package topology

import (
	"fmt"
	"math"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Plan is one topology: everything to declare and everything to route by. It is built once and never changed
// afterwards; all its methods are safe for concurrent use.
type Plan struct {
	// Name of the topology, as `sidecar plan` and the console show it.
	Preset string `json:"name,omitempty"`

	Service string `json:"-"`

	// Exchanges that are declared, and exchanges of other services that queues are bound to.
	Exchanges []Exchange `json:"exchanges"`

	// Queues that are declared, in this order. A queue that others dead-letter to comes first.
	Queues []Queue `json:"queues"`

	// Bindings of the queues to the exchanges.
	Bindings []Binding `json:"bindings"`

	// Name of the queue that is consumed: the one of kind main.
	Queue string `json:"queue"` // its "rejected" x-death entries are attempts, see message.RetryCount

	// Waits are the ways to wait, the shortest first. Empty: no retries, failed messages are parked.
	Waits []WaitPath `json:"-"`

	// A Retry-After chooses the shortest delay that covers it. Without this the number of the attempt alone chooses.
	Tiered bool `json:"tiered,omitempty"`

	// Park is the route of parked messages. The zero Route means that they are discarded.
	Park Route `json:"-"`

	// Redrive is the route from the dead-letter queue to the service's queue.
	Redrive Route `json:"-"`

	// Retries after the first attempt. With 10 the eleventh failed attempt parks the message.
	MaxRetries int `json:"max_retries"`

	Quorum   bool `json:"-"` // the durable variant: quorum queues with at-least-once dead-lettering
	AutoType bool `json:"-"` // the type of the queues is that of the service's queue, where it exists

	// Attempt is the longest time that a delivery stays unsettled; 0 = unknown.
	Attempt time.Duration `json:"-"`

	// Marks republished messages with the service's queue in the header x-retry-queue, so that other sidecars that get
	// the retry ack it. Required when a retry returns through an exchange.
	StampQueue bool `json:"stamp_queue,omitempty"`

	// SingleActive says that the service's queue must have a single active consumer: its messages are handled in order.
	SingleActive bool `json:"-"`

	// InPlace says that a message is handled in order: its retries wait in the sidecar, see Settlement.Hold.
	InPlace bool `json:"-"`

	// RequeueLimit is how often a message may be given back to the service's queue before it has to take another way,
	// because the queue has a delivery limit or may have one; 0 = no limit.
	RequeueLimit int `json:"-"`

	// Adopts says that the plan uses objects as they were found, see AsFound: they may be others tomorrow.
	Adopts bool `json:"-"`

	// FromFile says that the plan comes from SIDECAR_PLAN_FILE: no other variable can change it.
	FromFile bool `json:"-"`

	// A header that also carries the number of the coming attempt, as text, for other consumers.
	CountHeader string `json:"count_header,omitempty"`

	arguments amqp.Table // Options.QueueArguments

	notes []string // what its settings came to that may surprise, a sentence each
}

// HeaderRetryQueue names the queue a republished message is meant for, see Plan.StampQueue.
const HeaderRetryQueue = "x-retry-queue"

// Exchange is an exchange of the plan. All exchanges are durable.
type Exchange struct {
	// Name of the exchange.
	Name string `json:"name"`

	// Type of the exchange: fanout, direct, topic or headers. Absent: the exchange belongs to another service; it is not
	// declared and has to exist.
	Type string `json:"type,omitempty" oneof:"fanout|direct|topic|headers"`

	// Marks an exchange that other services declare too: a user who may not declare it is fine if it exists.
	Shared bool `json:"shared,omitempty"`

	// Found are the properties of one that exists and differs from this; nil: none was found that differs.
	Found amqp.Table `json:"-"`

	// Unseen says that it exists and that the user may not compare it.
	Unseen bool `json:"-"`
}

// Kind says what a queue is for. Its text is the value of the metric label "kind".
type Kind string

// The kinds of queues.
const (
	KindMain  Kind = "main"
	KindRetry Kind = "retry"
	KindDLQ   Kind = "dlq"
)

// Queue is a queue of the plan. All queues are durable and non-exclusive.
type Queue struct {
	// Name of the queue.
	Name string `json:"name"`

	// What the queue is for: main (the service's queue), retry (messages wait in it) or dlq (parked messages).
	Kind Kind `json:"kind" oneof:"main|retry|dlq"`

	// All arguments of the declaration, by their AMQP names.
	Args amqp.Table `json:"arguments,omitempty"` // nil for none

	// Marks a queue that other services declare too: a user who may not declare it is fine if it exists.
	Shared bool `json:"shared,omitempty"`

	// Found are the properties of one that exists and differs from this, arguments and durable, auto_delete; nil: none was
	// found that differs.
	Found amqp.Table `json:"-"`

	// Unseen says that it exists and that the user may not compare it, or that nothing is compared.
	Unseen bool `json:"-"`

	// Beside says that messages wait here because the queue of the plan has another delay.
	Beside bool `json:"-"`
}

// Queue arguments. Every integer is an int64. RabbitMQ compares integers by value whatever
// their width, so a queue that another client declared with 32 bits is the same queue; but it distinguishes integers
// from texts and floats.
const (
	ArgDLX           = "x-dead-letter-exchange"
	ArgDLKey         = "x-dead-letter-routing-key"
	ArgTTL           = "x-message-ttl"
	ArgType          = "x-queue-type"
	ArgStrategy      = "x-dead-letter-strategy"
	ArgOverflow      = "x-overflow"
	ArgDeliveryLimit = "x-delivery-limit"
	ArgRetryType     = "x-delayed-retry-type" // this one and the next two are accepted and ignored before RabbitMQ 4.3
	ArgRetryMin      = "x-delayed-retry-min"
	ArgRetryMax      = "x-delayed-retry-max"
)

// Queue types, as the argument x-queue-type says them, and other values of arguments.
const (
	TypeAuto    = "auto" // of options: decided by what exists
	TypeClassic = "classic"
	TypeQuorum  = "quorum"

	strategyAtLeastOnce = "at-least-once"
	overflowReject      = "reject-publish"
	delayFailed         = "failed" // what is rejected with requeue, and what a lost connection returns
	delayAll            = "all"    // and what is given back by a nack
	delayReturned       = "returned"
	delayNothing        = "disabled"

	// NoDeliveryLimit means "no limit" on every broker version. -1 would say the same on some, but RabbitMQ 3.10 takes it
	// for a limit that is already reached.
	NoDeliveryLimit int64 = math.MaxInt32
)

// Binding ties a queue to an exchange.
type Binding struct {
	// Exchange that the queue is bound to, one of the plan's.
	Exchange string `json:"exchange"`

	// Binding key. A fanout or headers exchange has no use for it.
	Key string `json:"key,omitempty"`

	// Queue that gets the messages, one of the plan's.
	Queue string `json:"queue"`

	// What a headers exchange compares: x-match and the headers of a message.
	Args amqp.Table `json:"arguments,omitempty"` // nil for none
}

// Title names the binding for people.
func (b *Binding) Title() string {
	return fmt.Sprintf("binding of queue %q to exchange %q with key %q", b.Queue, b.Exchange, b.Key)
}

// Route is where to publish so that a message ends in Queue. An empty Exchange is the default exchange.
type Route struct {
	// Exchange to publish to. Empty: the default exchange.
	Exchange string `json:"exchange"`

	// Key to publish with. For the default exchange it is the name of the queue.
	Key string `json:"key"`

	// Queue that the message is in afterwards, one of the plan's.
	Queue string `json:"queue"`
}

// WaitPath is one way to wait: a queue that gives its messages back to the service's queue after Delay.
type WaitPath struct {
	Delay time.Duration `json:"-"`
	Route

	// How a message gets there: publish, or reject where the service's queue dead-letters to this queue. Messages that
	// must not be rejected are published there too. Or delay: the queue is the service's own, and delays it itself.
	By string `json:"by" oneof:"publish|reject|delay"` // at most one path says reject; one that says delay is the only one
}

// The ways to a queue where messages wait, see WaitPath.By. The delay of ByDelay is for each delivery that failed, at
// most the queue's argument x-delayed-retry-max.
const (
	ByPublish = "publish"
	ByReject  = "reject"
	ByDelay   = "delay"
)

// Tier returns the delay as it appears in names and texts.
func (w *WaitPath) Tier() string { return TierLabel(w.Delay) }

// WithoutReject returns a copy of p in which every retry leaves by a confirmed, mandatory publish. It is used where the
// way behind the dead-letter route may be missing: a reject into a missing binding loses the message without a trace, a
// publish is returned.
func (p *Plan) WithoutReject() *Plan {
	c := p.clone()
	c.publishRetries()
	return c
}

// clone copies what the methods that change a plan replace.
func (p *Plan) clone() *Plan {
	c := *p
	c.Exchanges, c.Queues = slices.Clone(p.Exchanges), slices.Clone(p.Queues)
	c.Bindings, c.Waits = slices.Clone(p.Bindings), slices.Clone(p.Waits)
	return &c
}

func (p *Plan) publishRetries() {
	for i := range p.Waits {
		if p.Waits[i].By == ByReject {
			p.Waits[i].By = ByPublish
		}
	}
}

// queue finds a queue of the plan by its name; nil when the plan does not hold it.
func (p *Plan) queue(name string) *Queue {
	for i := range p.Queues {
		if p.Queues[i].Name == name {
			return &p.Queues[i]
		}
	}
	return nil
}

// OwnQueue is the service's own queue.
func (p *Plan) OwnQueue() *Queue { return p.queue(p.Queue) }

// exchange finds an exchange of the plan by its name; nil when the plan does not hold it.
func (p *Plan) exchange(name string) *Exchange {
	for i := range p.Exchanges {
		if p.Exchanges[i].Name == name {
			return &p.Exchanges[i]
		}
	}
	return nil
}

// SpareBinding reports whether a binding connects two objects that others declare too: a user who may not make it is
// fine.
func (p *Plan) SpareBinding(b Binding) bool {
	x, q := p.exchange(b.Exchange), p.queue(b.Queue)
	return x != nil && x.Shared && q != nil && q.Shared
}

// DeadLetter returns where the queue's dead letters are published; ok is false when they are dropped.
func (q *Queue) DeadLetter() (exchange, key string, ok bool) {
	exchange, ok = q.Args[ArgDLX].(string)
	key, _ = q.Args[ArgDLKey].(string)
	return exchange, key, ok
}
