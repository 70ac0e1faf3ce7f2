package declare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// Session is a broker connection, as *broker.Session provides it.
type Session interface {
	// Channel opens a channel.
	Channel(ctx context.Context) (*amqp.Channel, error)
	// Do runs a blocking client call under a deadline.
	Do(ctx context.Context, name string, fn func() error) error
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
		ch, err := p.s.Channel(ctx)
		if p.ch = ch; err != nil {
			p.ch, p.err = nil, fmt.Errorf("%s: open channel: %w", name, err)
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
	if answer, ok := errors.AsType[*amqp.Error](err); ok && answers(answer) {
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

	passive    question
	active     question // nil: of another service, it is never declared
	impossible question // a declaration that every broker refuses

	queue *topology.Queue // nil: an exchange
	ready *int            // messages ready in the queue at the last passive question
}

// objects lists the exchanges and queues of a plan, each behind those that it needs.
func objects(p *topology.Plan) []object {
	all := make([]object, 0, len(p.Exchanges)+len(p.Queues))
	for _, x := range p.Exchanges {
		all = append(all, exchangeOf(x))
	}
	for i := range p.Queues {
		all = append(all, queueOf(&p.Queues[i]))
	}
	return all
}

func exchangeOf(x topology.Exchange) object {
	o := object{
		name: x.Name, title: exchangeObject(x.Name), kind: "exchange", spare: x.Shared, needs: "configure",
		properties: amqp.Table{"type": x.Type, "durable": true, "auto_delete": false, "internal": false},
		passive: func(ch *amqp.Channel, noWait bool) error { // the protocol wants a type, the broker ignores it
			return ch.ExchangeDeclarePassive(x.Name, "direct", true, false, false, noWait, nil)
		},
	}
	if x.Type == "" {
		return o
	}
	declare := func(args amqp.Table) question {
		return func(ch *amqp.Channel, noWait bool) error {
			return ch.ExchangeDeclare(x.Name, x.Type, true, false, false, noWait, args)
		}
	}
	o.kind = x.Type + " exchange"
	o.active, o.impossible = declare(nil), declare(amqp.Table{"alternate-exchange": noTTL})
	return o
}

func queueOf(q *topology.Queue) object {
	o := object{
		name: q.Name, title: queueObject(q.Name), kind: "queue", spare: q.Shared, needs: "configure",
		properties: amqp.Table{
			"durable": true, "auto_delete": false, "exclusive": false, topology.ArgType: topology.TypeClassic,
		},
		queue: q, ready: new(int),
	}
	maps.Copy(o.properties, q.Args)
	o.passive = func(ch *amqp.Channel, noWait bool) error {
		state, err := ch.QueueDeclarePassive(q.Name, true, false, false, noWait, nil)
		*o.ready = state.Messages
		return err
	}
	impossible := amqp.Table{topology.ArgTTL: noTTL}
	if exchange, _, ok := q.DeadLetter(); ok {
		o.needs = "configure and read" // reading, because its messages are published on
		impossible[topology.ArgDLX] = exchange
	}
	o.active, o.impossible = declareQueue(q.Name, q.Args), declareQueue(q.Name, impossible)
	return o
}

// check is one of the questions about an object. After a refusal the others are not asked.
type check struct {
	verb     string
	question question
}

// lookFor is the verb of a passive check.
const lookFor = "look for "

// checks are the questions whether an object is there and as wanted.
func (o *object) checks(mode topology.Mode) []check {
	var all []check
	if mode != topology.ModeDeclare || o.active == nil {
		all = append(all, check{lookFor, o.passive})
	}
	if o.active != nil {
		all = append(all, check{"declare ", o.active})
	}
	if o.queue != nil && o.queue.Args[topology.ArgType] == nil {
		// A virtual host can make quorum queues of declarations that name no type. Asked this way the queue is there
		// already, and one that was declared without a type is the same as a classic one.
		typed := amqp.Table{topology.ArgType: topology.TypeClassic}
		maps.Copy(typed, o.queue.Args)
		all = append(all, check{"compare ", declareQueue(o.name, typed)})
	}
	return all
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

// wanted is a property in the plan, with its value in the broker's words.
func (o *object) wanted(property string) string {
	value, ok := o.properties[property]
	if !ok {
		value = absentValue
	}
	return fmt.Sprint(property, " ", value)
}
