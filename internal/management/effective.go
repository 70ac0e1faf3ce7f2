package management

import (
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/topology"
)

// setting is a key of policies that changes how a queue keeps its messages.
type setting struct {
	key      string
	argument string                         // that has the same meaning
	only     string                         // the type of the queues that take it; empty: all
	merge    func(policy, argument any) any // what is in effect where a queue has both
}

// settings are as the queues of RabbitMQ 3.10, 4.0 and 4.3 merge them, with one exception: when a quorum queue of 3.10
// expires is decided by the policy alone.
var settings = []setting{
	{"message-ttl", topology.ArgTTL, "", smaller},
	{"max-length", "x-max-length", "", smaller},
	{"max-length-bytes", "x-max-length-bytes", "", smaller},
	{"expires", "x-expires", "", smaller},
	{"overflow", topology.ArgOverflow, topology.TypeClassic, argumentWins},
	{"overflow", topology.ArgOverflow, topology.TypeQuorum, policyWins},
	{"dead-letter-exchange", topology.ArgDLX, "", argumentWins},
	{"dead-letter-routing-key", topology.ArgDLKey, "", argumentWins},
	{"dead-letter-strategy", topology.ArgStrategy, topology.TypeQuorum, argumentWins},
	{"delivery-limit", topology.ArgDeliveryLimit, topology.TypeQuorum, smaller},
	{"delayed-retry-type", "x-delayed-retry-type", topology.TypeQuorum, policyWins},
	{"delayed-retry-min", "x-delayed-retry-min", topology.TypeQuorum, smaller},
	{"delayed-retry-max", "x-delayed-retry-max", topology.TypeQuorum, smaller},
}

func argumentWins(_, argument any) any { return argument }

func policyWins(policy, _ any) any { return policy }

// smaller returns the smaller limit; a negative one is no limit at all.
func smaller(policy, argument any) any {
	p, ok := policy.(int64)
	a, both := argument.(int64)
	switch {
	case !ok || !both:
		return policy
	case p < 0 || a < 0:
		return max(p, a)
	}
	return min(p, a)
}

// Effective returns durable, auto_delete, the type as x-queue-type, and the arguments as they are in effect together
// with the policies. by names the policies for each argument that they give another value than it was declared with.
func (q *Queue) Effective() (all amqp.Table, by map[string]string) {
	all, by = amqp.Table{}, map[string]string{}
	for name, value := range q.Arguments {
		all[name] = scalar(value)
	}
	for _, s := range settings {
		value, ok := q.Settings[s.key]
		if !ok || s.only != "" && s.only != q.Type {
			continue
		}
		value = scalar(value)
		argument, both := all[s.argument]
		if both {
			value = s.merge(value, argument)
		}
		if value != argument {
			all[s.argument], by[s.argument] = value, q.policies()
		}
	}
	all["durable"], all["auto_delete"], all[topology.ArgType] = q.Durable, q.AutoDelete, q.Type
	return all, by
}

// scalar makes JSON of lists and tables: no argument that RabbitMQ reads is one.
func scalar(value any) any {
	switch value.(type) {
	case amqp.Table, []any:
		return amqpvalue.Text(value)
	}
	return value
}

func (q *Queue) policies() string {
	var names []string
	if q.Policy != "" {
		names = append(names, fmt.Sprintf("policy %q", q.Policy))
	}
	if q.OperatorPolicy != "" {
		names = append(names, fmt.Sprintf("operator policy %q", q.OperatorPolicy))
	}
	return strings.Join(names, " and ")
}
