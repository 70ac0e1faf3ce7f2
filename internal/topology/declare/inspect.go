package declare

import (
	"context"
	"maps"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// A queue is inspected by declaring it with an argument of streams and a value that no stream takes. Classic and quorum
// queues are not compared by that argument, and no queue can be declared with it: so the broker compares everything
// else and never makes anything. It names the first property that differs, with the value it has; with that one as it
// is, it is asked again.
const (
	argGuard   = "x-max-age"
	valueGuard = "never"

	notAName = int64(-1) // guards an exchange, as its alternate exchange
)

// mostProperties is how many properties are read one after the other.
const mostProperties = 32

// compareQueue asks whether a queue with exactly these properties is there.
func compareQueue(name string, properties amqp.Table) question {
	args := maps.Clone(properties)
	durable, autoDelete := args[topology.PropertyDurable] == true, args[topology.PropertyAutoDelete] == true
	delete(args, topology.PropertyDurable)
	delete(args, topology.PropertyAutoDelete)
	args[argGuard] = valueGuard
	return func(ch *amqp.Channel, noWait bool) error {
		_, err := ch.QueueDeclare(name, durable, autoDelete, false, noWait, args)
		return err
	}
}

// newQuorum reports whether the broker would make a quorum queue of a missing queue that is declared without a type: by
// the default type of the virtual host or the node.
func (p *prober) newQuorum(ctx context.Context, q *topology.Queue) bool {
	refusal := p.ask(ctx, "inspect "+q.Title(), declareQueue(q.Name, amqp.Table{argGuard: valueGuard}))
	return refusal != nil && strings.HasSuffix(refusal.Reason, " of queue type rabbit_quorum_queue")
}

// inspectQueue reads all properties of a queue that is not as planned; nil: it is not there, or the broker refused for
// another reason than what differs.
func (p *prober) inspectQueue(ctx context.Context, name string, planned amqp.Table) (amqp.Table, *amqp.Error) {
	title := "inspect " + topology.QueueTitle(name)
	refusal := p.ask(ctx, title, compareQueue(name, planned))
	if p.err != nil || refusal == nil {
		return planned, refusal
	}
	properties := amqp.Table{
		topology.PropertyDurable: true, topology.PropertyAutoDelete: false, topology.ArgType: topology.TypeClassic,
	}
	return p.adoptAll(ctx, title, properties, planned, func(properties amqp.Table) question {
		return compareQueue(name, properties)
	})
}

// inspectExchange is inspectQueue for an exchange. It asks with a number as alternate exchange, which never matches.
func (p *prober) inspectExchange(ctx context.Context, name string, planned amqp.Table) (amqp.Table, *amqp.Error) {
	properties := maps.Clone(planned)
	properties[topology.ArgAlternate] = notAName
	title := "inspect " + topology.ExchangeTitle(name)
	found, refusal := p.adoptAll(ctx, title, properties, planned, func(properties amqp.Table) question {
		return declareExchange(name, properties)
	})
	if found[topology.ArgAlternate] == notAName {
		delete(found, topology.ArgAlternate)
	}
	return found, refusal
}

func declareExchange(name string, properties amqp.Table) question {
	kind, _ := properties[topology.PropertyType].(string)
	args := maps.Clone(properties)
	maps.DeleteFunc(args, func(name string, _ any) bool { return !strings.Contains(name, "-") }) // no property has one
	return func(ch *amqp.Channel, noWait bool) error {
		return ch.ExchangeDeclare(name, kind, properties[topology.PropertyDurable] == true,
			properties[topology.PropertyAutoDelete] == true, properties[topology.PropertyInternal] == true, noWait, args)
	}
}

// adoptAll asks until nothing differs from properties, each time with one more of them as the broker has it. Where the
// broker's answer ends before the value, it asks with the planned value.
func (p *prober) adoptAll(ctx context.Context, title string, properties, planned amqp.Table,
	ask func(amqp.Table) question) (found amqp.Table, refusal *amqp.Error) {
	for range mostProperties {
		refusal = p.ask(ctx, title, ask(properties))
		if p.err != nil || refusal == nil {
			return properties, refusal
		}
		d, ok := drifted(refusal)
		switch {
		case atLimit(refusal):
			return nil, refusal
		case !ok && refusal.Code == amqp.PreconditionFailed: // it would have been made, were the argument not refused
			return nil, nil
		case d.cut && planned[d.property] != properties[d.property]:
			properties[d.property] = planned[d.property]
		case !ok, d.cut:
			return nil, refusal
		case d.property == topology.ArgAlternate && d.value == nil:
			return properties, nil
		case d.value == nil:
			delete(properties, d.property)
		default:
			properties[d.property] = d.value
		}
		if !slices.Contains([]any{nil, topology.TypeClassic, topology.TypeQuorum}, properties[topology.ArgType]) {
			return properties, nil // a stream is compared by the argument that guards
		}
	}
	return nil, refusal
}

// refusal is about an object whose properties the broker does not return.
func (e *ensurer) refusal(ctx context.Context, o *object, refusal *amqp.Error) {
	d, differs := drifted(refusal)
	switch {
	case differs:
		e.findings = append(e.findings, tooLong(o, d))
	case absent(refusal):
		e.missing[o.title] = true
	case refusal.Code != amqp.AccessRefused:
		e.refused(o.title, "a durable, shared "+o.kind, refusal)
	case o.active == nil:
		e.forbidden(o.title, o.name, "read", refusal)
	case e.mode == topology.ModeDeclare && !o.spare:
		e.forbidden(o.title, o.name, o.needs, refusal)
	default:
		e.findWithoutRights(ctx, o, refusal)
	}
}

// findWithoutRights asks whether an object is there that the user may not compare.
func (e *ensurer) findWithoutRights(ctx context.Context, o *object, first *amqp.Error) {
	refusal := e.ask(ctx, lookFor+o.title, o.passive)
	switch {
	case refusal == nil:
		e.found.Unseen[o.title] = true
	case absent(refusal) && e.mode == topology.ModeDeclare:
		e.forbidden(o.title, o.name, o.needs, first)
	case absent(refusal):
		e.missing[o.title] = true
	case refusal.Code == amqp.AccessRefused:
		e.forbidden(o.title, o.name, "read", refusal)
	default:
		e.refused(o.title, "a durable, shared "+o.kind, refusal)
	}
}
