package management

import (
	"context"
	"errors"
	"fmt"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/topology"
)

// Seen holds the plan's objects in the broker and related leftover queues.
type Seen struct {
	Queues    map[string]Queue   // those of the plan that exist, by name
	Exchanges map[string]string  // the types of those of the plan that exist, by name
	Bindings  []topology.Binding // of these queues to any exchange but the default one

	// Leftover are queues that the plan does not name and whose messages return to the service's queue by the default
	// exchange: retry queues of an earlier delay.
	Leftover []Leftover

	// Waiting is how many messages of the service's queue are neither ready nor unacknowledged: that queue delays them; or
	// "unknown".
	Waiting string

	// Unread counts the queues of the virtual host that were not searched for leftovers, because there are too many.
	Unread int
}

// Queue is a queue in the broker.
type Queue struct {
	Type       string `json:"type"`
	Durable    bool   `json:"durable"`
	AutoDelete bool   `json:"auto_delete"`
	Arguments  Table  `json:"arguments"`

	Policy         string `json:"policy"`
	OperatorPolicy string `json:"operator_policy"`

	// Settings are those of both policies together; empty: none apply; nil: the broker does not say (yet). Up to 4.2 they
	// are part of its statistics, which are some seconds late and can be turned off.
	Settings Table `json:"effective_policy_definition"`
}

// Table is a table of AMQP in the JSON of the API. Its integers are int64, as those of a plan.
type Table amqp.Table

// UnmarshalJSON reads an object.
func (t *Table) UnmarshalJSON(b []byte) error {
	read, _, err := amqpvalue.ParseTable(b, func(string) bool { return false })
	*t = Table(read)
	return err
}

// Leftover is a queue outside the plan that dead-letters to the service's queue.
type Leftover struct {
	Name, Type string
	Messages   int
}

const (
	pageSize = 500 // the most that the API gives
	maxPages = 20
)

// Read asks the API about the plan's objects. Objects that do not exist are missing in what it returns. An error says
// that the API cannot be used; it holds no password.
func Read(ctx context.Context, o Options, p *topology.Plan) (*Seen, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c := newClient(o)
	defer c.http.CloseIdleConnections()
	if err := c.recognize(ctx); err != nil {
		return nil, err
	}
	s := &Seen{Queues: map[string]Queue{}, Exchanges: map[string]string{}, Waiting: "unknown"}
	for _, q := range p.Queues {
		if err := s.readQueue(ctx, c, q.Name); err != nil && !errors.Is(err, errNotFound) {
			return nil, err
		}
	}
	for _, x := range p.Exchanges {
		var found struct {
			Type string `json:"type"`
		}
		err := c.get(ctx, &found, "columns=type", "exchanges", o.Vhost, x.Name)
		if err == nil {
			s.Exchanges[x.Name] = found.Type
		} else if !errors.Is(err, errNotFound) {
			return nil, err
		}
	}
	return s, s.readLeftovers(ctx, c, p, pageSize, maxPages)
}

// recognize returns an error unless RabbitMQ's API answers.
func (c *client) recognize(ctx context.Context) error {
	var overview struct {
		Version string `json:"management_version"`
	}
	err := c.get(ctx, &overview, "disable_stats=true&columns=management_version", "overview")
	if errors.Is(err, errNotFound) || err == nil && overview.Version == "" {
		return fmt.Errorf("%s is not RabbitMQ's management API: set SIDECAR_MANAGEMENT_URL to what comes before /api",
			c.o.URL)
	}
	return err
}

// readQueue reads a queue with its bindings. With errNotFound, at whichever request, nothing is seen of it.
func (s *Seen) readQueue(ctx context.Context, c *client, queue string) error {
	const columns = "columns=type,durable,auto_delete,arguments,policy,operator_policy,effective_policy_definition"
	var found, now Queue
	if err := c.get(ctx, &found, columns, "queues", c.o.Vhost, queue); err != nil {
		return err
	}
	// From 4.3 on policies are there without statistics too, and are not late.
	if err := c.get(ctx, &now, columns+"&disable_stats=true", "queues", c.o.Vhost, queue); err != nil {
		return err
	}
	var bindings []struct {
		Source    string `json:"source"`
		Key       string `json:"routing_key"`
		Arguments Table  `json:"arguments"`
	}
	if err := c.get(ctx, &bindings, "", "queues", c.o.Vhost, queue, "bindings"); err != nil {
		return err
	}
	if now.Settings != nil {
		found.Policy, found.OperatorPolicy, found.Settings = now.Policy, now.OperatorPolicy, now.Settings
	}
	s.Queues[queue] = found
	for _, b := range bindings {
		if b.Source != "" {
			bound := topology.Binding{Exchange: b.Source, Key: b.Key, Queue: queue, Args: amqp.Table(b.Arguments)}
			s.Bindings = append(s.Bindings, bound)
		}
	}
	return nil
}

func (s *Seen) readLeftovers(ctx context.Context, c *client, p *topology.Plan, size, pages int) error {
	for page := 1; ; page++ {
		var found struct {
			Pages int `json:"page_count"`
			Total int `json:"total_count"`
			Items []struct {
				Name      string `json:"name"`
				Type      string `json:"type"`
				Arguments Table  `json:"arguments"`
				Messages  int    `json:"messages"`
				Ready     int    `json:"messages_ready"`
				Unacked   int    `json:"messages_unacknowledged"`
			} `json:"items"`
		}
		err := c.get(ctx, &found, fmt.Sprintf("disable_stats=true&enable_queue_totals=true&sort=name&"+
			"columns=name,type,arguments,messages,messages_ready,messages_unacknowledged&page=%d&page_size=%d", page, size),
			"queues", c.o.Vhost)
		if errors.Is(err, errNotFound) {
			return fmt.Errorf("%w: virtual host %q does not exist, or the user has no permissions in it", err, c.o.Vhost)
		}
		if err != nil {
			return err
		}
		for _, q := range found.Items {
			if q.Name == p.Queue {
				s.Waiting = fmt.Sprint(max(0, q.Messages-q.Ready-q.Unacked))
			}
			planned := slices.ContainsFunc(p.Queues, func(own topology.Queue) bool { return own.Name == q.Name })
			exchange, key, ok := (&topology.Queue{Args: amqp.Table(q.Arguments)}).DeadLetter()
			if !planned && ok && exchange == "" && key == p.Queue {
				s.Leftover = append(s.Leftover, Leftover{q.Name, q.Type, q.Messages})
			}
		}
		if page >= found.Pages || page == pages {
			s.Unread = max(found.Total-page*size, 0)
			return nil
		}
	}
}
