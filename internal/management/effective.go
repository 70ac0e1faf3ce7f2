package management

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// setting is a key of policies that changes how a queue keeps its messages.
type setting struct {
	key      string
	argument string // that has the same meaning
	quorum   bool   // classic queues ignore it

	// merge returns what is in effect where a queue has both.
	merge func(policy, argument any, quorum bool) any
}

// settings are as the queues of RabbitMQ 3.10, 4.0 and 4.3 merge them; 3.10 lets a policy alone decide when a quorum
// queue expires.
var settings = []setting{
	{"message-ttl", topology.ArgTTL, false, smaller},
	{"max-length", "x-max-length", false, smaller},
	{"max-length-bytes", "x-max-length-bytes", false, smaller},
	{"expires", "x-expires", false, smaller},
	{"overflow", topology.ArgOverflow, false, policyOfQuorum},
	{"dead-letter-exchange", topology.ArgDLX, false, argumentWins},
	{"dead-letter-routing-key", topology.ArgDLKey, false, argumentWins},
	{"dead-letter-strategy", topology.ArgStrategy, true, argumentWins},
	{"delivery-limit", topology.ArgDeliveryLimit, true, smallerLimit},
	{"delayed-retry-type", "x-delayed-retry-type", true, policyOfQuorum},
	{"delayed-retry-min", "x-delayed-retry-min", true, smaller},
	{"delayed-retry-max", "x-delayed-retry-max", true, smaller},
}

func argumentWins(_, argument any, _ bool) any { return argument }

func policyOfQuorum(policy, argument any, quorum bool) any {
	if quorum {
		return policy
	}
	return argument
}

func smaller(policy, argument any, _ bool) any {
	p, ok := policy.(int64)
	a, both := argument.(int64)
	if ok && both {
		return min(p, a)
	}
	return policy
}

// smallerLimit is smaller for a limit that may be negative, which is no limit at all.
func smallerLimit(policy, argument any, quorum bool) any {
	p, ok := policy.(int64)
	a, both := argument.(int64)
	if ok && both && (p < 0 || a < 0) {
		return max(p, a)
	}
	return smaller(policy, argument, quorum)
}

// Properties are durable, auto_delete, the type as x-queue-type, and the arguments as they are in effect together with
// the policies. Lists and tables are in it as JSON: no argument that RabbitMQ reads is one.
func (q *Queue) Properties() amqp.Table {
	all := amqp.Table{}
	maps.Copy(all, q.Arguments)
	for _, s := range settings {
		if value, ok := q.Settings[s.key]; ok && (q.Type == topology.TypeQuorum || !s.quorum) {
			if argument, both := q.Arguments[s.argument]; both {
				value = s.merge(value, argument, q.Type == topology.TypeQuorum)
			}
			all[s.argument] = value
		}
	}
	for name, value := range all {
		switch value.(type) {
		case map[string]any, []any:
			b, _ := json.Marshal(value) // it was JSON
			all[name] = string(b)
		}
	}
	all["durable"], all["auto_delete"], all[topology.ArgType] = q.Durable, q.AutoDelete, q.Type
	return all
}

// Changed reports whether policies give the queue other arguments than it was declared with.
func (q *Queue) Changed() bool { return !maps.Equal(q.Properties(), q.declared()) }

func (q *Queue) declared() amqp.Table {
	plain := *q
	plain.Settings = nil
	return plain.Properties()
}

// PolicyOf names the policies that give the queue another argument than it was declared with; "" if none does.
func (q *Queue) PolicyOf(argument string) string {
	if q.Properties()[argument] == q.declared()[argument] {
		return ""
	}
	var names []string
	if q.Policy != "" {
		names = append(names, fmt.Sprintf("policy %q", q.Policy))
	}
	if q.OperatorPolicy != "" {
		names = append(names, fmt.Sprintf("operator policy %q", q.OperatorPolicy))
	}
	return strings.Join(names, " and ")
}
