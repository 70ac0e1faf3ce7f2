package declare

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// object is one exchange or queue, with the two ways to ask about it.
type object struct {
	name    string
	title   string // as findings call it
	kind    string // what it is, for the fix of one that is missing
	wanted  func(property string) string
	fix     func(property, found, vhost string) string
	passive question
	active  question // nil: of another service, it is never declared
	spare   bool     // without the right to declare it, being there is enough
	needs   string   // the permission that declaring takes, where the broker does not say which
}

func exchangeOf(x topology.Exchange) object {
	o := object{
		name: x.Name, title: exchangeObject(x.Name), kind: "exchange", spare: x.Shared, needs: "configure",
		wanted:  func(property string) string { return exchangeProperty(x, property) },
		fix:     func(property, found, _ string) string { return fixExchange(x, property, found) },
		passive: passiveExchange(x.Name),
	}
	if x.Type != "" {
		o.kind = x.Type + " exchange"
		o.active = func(ch *amqp.Channel, noWait bool) error {
			return ch.ExchangeDeclare(x.Name, x.Type, true, false, false, noWait, nil)
		}
	}
	return o
}

func queueOf(q *topology.Queue) object {
	o := object{
		name: q.Name, title: queueObject(q.Name), kind: "queue", spare: q.Shared, needs: "configure",
		wanted: func(property string) string { return queueProperty(q, property) },
		fix:    func(property, found, vhost string) string { return fixQueue(q, property, found, vhost) },
		passive: func(ch *amqp.Channel, noWait bool) error {
			_, err := ch.QueueDeclarePassive(q.Name, true, false, false, noWait, nil)
			return err
		},
		active: activeQueue(q.Name, q.Args),
	}
	if _, _, ok := q.DeadLetter(); ok {
		o.needs = "configure and read" // reading, because its messages are published on
	}
	return o
}

func activeQueue(name string, args amqp.Table) question {
	return func(ch *amqp.Channel, noWait bool) error {
		_, err := ch.QueueDeclare(name, true, false, false, noWait, args)
		return err
	}
}

// passiveExchange names a type because the protocol wants one; the broker ignores it.
func passiveExchange(name string) question {
	return func(ch *amqp.Channel, noWait bool) error {
		return ch.ExchangeDeclarePassive(name, "direct", true, false, false, noWait, nil)
	}
}
