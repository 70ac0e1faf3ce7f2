package topology

import (
	"reflect"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The part of a RabbitMQ definitions file that a plan needs.
type definitions struct {
	Exchanges []objectDefinition  `json:"exchanges"`
	Queues    []objectDefinition  `json:"queues"`
	Bindings  []bindingDefinition `json:"bindings"`
}

type objectDefinition struct {
	Name       string     `json:"name"`
	Vhost      string     `json:"vhost"`
	Type       string     `json:"type,omitempty"` // of an exchange
	Durable    bool       `json:"durable"`
	AutoDelete bool       `json:"auto_delete"`
	Internal   *bool      `json:"internal,omitempty"` // of an exchange
	Arguments  amqp.Table `json:"arguments"`
}

type bindingDefinition struct {
	Source          string     `json:"source"`
	Vhost           string     `json:"vhost"`
	Destination     string     `json:"destination"`
	DestinationType string     `json:"destination_type"`
	RoutingKey      string     `json:"routing_key"`
	Arguments       amqp.Table `json:"arguments"`
}

// Merge returns a plan with the objects of all plans, each once, and nothing else.
func Merge(plans ...*Plan) *Plan {
	all := &Plan{}
	for _, p := range plans {
		for _, x := range p.Exchanges {
			if found := all.exchange(x.Name); found == nil {
				all.Exchanges = append(all.Exchanges, x)
			} else if found.Type == "" {
				*found = x
			}
		}
		for _, q := range p.Queues {
			if all.queue(q.Name) == nil {
				all.Queues = append(all.Queues, q)
			}
		}
		for _, b := range p.Bindings {
			if !slices.ContainsFunc(all.Bindings, func(a Binding) bool { return reflect.DeepEqual(a, b) }) {
				all.Bindings = append(all.Bindings, b)
			}
		}
	}
	return all
}

// Definitions is the plan as a RabbitMQ definitions file for a virtual host, which has to exist: what
// `rabbitmqctl import_definitions` takes. Exchanges of others are not in it and have to exist too.
func (p *Plan) Definitions(vhost string) ([]byte, error) {
	d := definitions{Exchanges: []objectDefinition{}, Queues: []objectDefinition{}, Bindings: []bindingDefinition{}}
	for _, e := range p.Exchanges {
		if e.Type == "" || predeclared[e.Name] != "" {
			continue
		}
		d.Exchanges = append(d.Exchanges, objectDefinition{
			Name: e.Name, Vhost: vhost, Type: e.Type, Durable: true, Internal: new(false), Arguments: amqp.Table{},
		})
	}
	for _, q := range p.Queues {
		d.Queues = append(d.Queues, objectDefinition{
			Name: q.Name, Vhost: vhost, Durable: true, Arguments: notNull(q.Args),
		})
	}
	for _, b := range p.Bindings {
		d.Bindings = append(d.Bindings, bindingDefinition{
			Source: b.Exchange, Vhost: vhost, Destination: b.Queue, DestinationType: "queue", RoutingKey: b.Key,
			Arguments: notNull(b.Args),
		})
	}
	return p.encode(d)
}

// notNull is args as a JSON object, also when there are none.
func notNull(args amqp.Table) amqp.Table {
	if args == nil {
		return amqp.Table{}
	}
	return args
}
