package topologytest

import (
	"maps"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// Arguments that name other objects.
const (
	argDLX   = "x-dead-letter-exchange"
	argDLKey = "x-dead-letter-routing-key"
)

// twin is a copy of a plan with names of its own: what breaks one does not disturb the other. Keys stay, unless they
// are the name of a queue.
func twin(p *topology.Plan, suffix string) *topology.Plan {
	c := *p
	exchanges, queues := map[string]string{}, map[string]string{}
	for _, x := range p.Exchanges {
		exchanges[x.Name] = x.Name + suffix
	}
	for _, q := range p.Queues {
		queues[q.Name] = q.Name + suffix
	}
	named := func(names map[string]string, name string) string {
		if other, ok := names[name]; ok {
			return other
		}
		return name
	}
	route := func(r topology.Route) topology.Route {
		return topology.Route{Exchange: named(exchanges, r.Exchange), Key: named(queues, r.Key), Queue: named(queues, r.Queue)}
	}
	c.Exchanges, c.Queues, c.Bindings, c.Waits = nil, nil, nil, nil
	for _, x := range p.Exchanges {
		x.Name = exchanges[x.Name]
		c.Exchanges = append(c.Exchanges, x)
	}
	for _, q := range p.Queues {
		q.Name, q.Args = queues[q.Name], maps.Clone(q.Args)
		rename(q.Args, argDLX, exchanges)
		rename(q.Args, argDLKey, queues)
		c.Queues = append(c.Queues, q)
	}
	for _, b := range p.Bindings {
		b.Exchange, b.Key, b.Queue = exchanges[b.Exchange], named(queues, b.Key), queues[b.Queue]
		c.Bindings = append(c.Bindings, b)
	}
	for _, w := range p.Waits {
		w.Route = route(w.Route)
		c.Waits = append(c.Waits, w)
	}
	c.Queue, c.Park, c.Redrive = queues[p.Queue], route(p.Park), route(p.Redrive)
	return &c
}

func rename(args amqp.Table, arg string, names map[string]string) {
	if name, ok := args[arg].(string); ok && names[name] != "" {
		args[arg] = names[name]
	}
}
