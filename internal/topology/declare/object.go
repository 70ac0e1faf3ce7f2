package declare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// Session is a broker connection, as *broker.Session provides it.
type Session interface {
	Channel(ctx context.Context) (*amqp.Channel, error)
	// Do runs a blocking client call under a deadline.
	Do(ctx context.Context, name string, fn func() error) error
	// Try asks whether the broker would accept a message, without publishing it.
	Try(ctx context.Context, pub *message.Publication) error
	// Major is the first part of the broker's version, 0 if unknown.
	Major() int
	Version() string
	AtLeast(major, minor int) bool
}

// question asks the broker one thing. With noWait the broker answers only when it refuses.
type question func(ch *amqp.Channel, noWait bool) error

// prober asks the broker one thing at a time. The broker answers a refused question by closing the channel, so
// channels are thrown away; the connection stays.
type prober struct {
	s   Session
	ch  *amqp.Channel
	err error // trouble with the connection, which answers nothing: no question after it is asked
}

// ask runs one question and returns the broker's answer when it closed the channel over it. Without an answer the
// question was answered well, or p.err says why it was not.
func (p *prober) ask(ctx context.Context, name string, q question) (refusal *amqp.Error) {
	if p.err == nil && (p.ch == nil || p.ch.IsClosed()) {
		if p.ch, p.err = p.s.Channel(ctx); p.err != nil {
			p.ch, p.err = nil, fmt.Errorf("%s: open channel: %w", name, p.err)
		}
	}
	ch := p.ch
	if ch == nil {
		return nil // p.err says why
	}
	err := p.s.Do(ctx, name, func() error { return q(ch, false) })
	if err == nil {
		return nil
	}
	p.ch = nil
	answer, ok := errors.AsType[*amqp.Error](err)
	if ok && answers(answer) {
		return answer
	}
	p.err = fmt.Errorf("%s: %w", name, err)
	return nil
}

// answers reports whether e is the broker's answer to a request: it closes the channel only. All others close the
// connection.
func answers(e *amqp.Error) bool {
	return e.Server && slices.Contains([]int{
		amqp.AccessRefused, amqp.NotFound, amqp.ResourceLocked, amqp.PreconditionFailed,
	}, e.Code)
}

func (p *prober) close(ctx context.Context) {
	if ch := p.ch; ch != nil {
		_ = p.s.Do(ctx, "close channel", ch.Close) // an answer changes nothing: the channel is not used again
	}
}

// object is one exchange or queue, with the ways to ask about it.
type object struct {
	name       string
	title      string     // as findings call it
	kind       string     // what it is, for the fix of one that is missing
	properties amqp.Table // in the plan, by the broker's names
	spare      bool       // without the right to declare it, being there is enough
	needs      string     // the permission that declaring takes, where the broker does not say which

	passive question
	active  question // nil: of another service, it is never declared
	guarded question // compares it, and never makes it

	queue  *topology.Queue // nil: an exchange
	unseen bool            // it exists and cannot be compared
	found  amqp.Table      // properties of one that is used as it is; nil: as planned
	counts *amqp.Queue     // of a queue at the last passive question: messages ready, consumers
}

// objects lists each object behind those that it needs.
func objects(p *topology.Plan) []object {
	all := make([]object, 0, len(p.Exchanges)+len(p.Queues))
	for i := range p.Exchanges {
		all = append(all, exchangeOf(&p.Exchanges[i]))
	}
	for i := range p.Queues {
		all = append(all, queueOf(&p.Queues[i]))
	}
	return all
}

func exchangeOf(x *topology.Exchange) object {
	o := object{
		name: x.Name, title: x.Title(), kind: "exchange", spare: x.Shared, needs: "configure", found: x.Found,
		unseen:     x.Unseen,
		properties: x.Properties(),
		passive: func(ch *amqp.Channel, noWait bool) error { // the protocol wants a type, the broker ignores it
			return ch.ExchangeDeclarePassive(x.Name, "direct", true, false, false, noWait, nil)
		},
	}
	if x.Type == "" {
		return o
	}
	guarded := maps.Clone(o.properties)
	guarded[topology.ArgAlternate] = notAName
	o.kind = x.Type + " exchange"
	o.active, o.guarded = declareExchange(x.Name, o.properties), declareExchange(x.Name, guarded)
	return o
}

func queueOf(q *topology.Queue) object {
	o := object{
		name: q.Name, title: q.Title(), kind: "queue", spare: q.Shared, needs: "configure", found: q.Found,
		unseen:     q.Unseen,
		properties: q.Properties(), queue: q, counts: new(amqp.Queue),
	}
	o.passive = func(ch *amqp.Channel, noWait bool) (err error) {
		if noWait { // nothing is counted
			_, err = ch.QueueDeclarePassive(q.Name, true, false, false, noWait, nil)
		} else {
			*o.counts, err = Count(ch, q.Name)
		}
		return err
	}
	if _, _, ok := q.DeadLetter(); ok {
		o.needs = "configure and read" // reading, because its messages are published on
	}
	o.active, o.guarded = declareQueue(q.Name, q.Args), compareQueue(q.Name, o.properties)
	return o
}

// untyped reports whether the object is a queue whose declaration names no type.
func (o *object) untyped() bool { return o.queue != nil && o.queue.Args[topology.ArgType] == nil }

// lookFor is the verb of a passive question.
const lookFor = "look for "

// questions are those that the broker answers well for an object that is as it was found or planned. They create
// nothing.
func (o *object) questions() []question {
	switch {
	case o.active == nil, o.unseen, o.found != nil && o.queue == nil:
		return []question{o.passive}
	case o.found != nil:
		return []question{compareQueue(o.name, o.found)}
	case o.queue == nil:
		return []question{o.passive, o.active} // the first one misses it, the second one compares it
	}
	return []question{o.guarded}
}

func bind(b topology.Binding) question {
	return func(ch *amqp.Channel, noWait bool) error {
		return ch.QueueBind(b.Queue, b.Key, b.Exchange, noWait, b.Args)
	}
}

func declareQueue(name string, args amqp.Table) question {
	return func(ch *amqp.Channel, noWait bool) error {
		_, err := ch.QueueDeclare(name, true, false, false, noWait, args)
		return err
	}
}
