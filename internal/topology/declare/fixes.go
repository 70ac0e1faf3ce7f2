package declare

import (
	"cmp"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// absentValue is how the broker calls an argument that is not set.
const absentValue = "none"

// queueProperty is the value of a property in the plan, in the broker's words.
func queueProperty(q *topology.Queue, property string) string {
	switch property {
	case "durable":
		return "true"
	case "auto_delete", "exclusive":
		return "false"
	case topology.ArgType:
		if q.Args[topology.ArgType] == nil {
			return topology.TypeClassic
		}
	}
	if v, ok := q.Args[property]; ok {
		return fmt.Sprint(v)
	}
	return absentValue
}

func exchangeProperty(x topology.Exchange, property string) string {
	switch property {
	case "type":
		return x.Type
	case "durable":
		return "true"
	case "auto_delete", "internal":
		return "false"
	}
	return absentValue
}

// fixQueue: the sidecar never deletes a queue. Where a setting can follow the broker, it is named first.
func fixQueue(q *topology.Queue, property, found, vhost string) string {
	again := fmt.Sprintf("empty the queue and delete it (rabbitmqctl delete_queue -p %s %s --if-empty --if-unused): it "+
		"is then declared as wanted", cmp.Or(vhost, "VHOST"), q.Name)
	if q.Kind == topology.KindRetry && property == topology.ArgTTL {
		if d, err := time.ParseDuration(found + "ms"); err == nil {
			return fmt.Sprintf("set the delay to %s, or %s", topology.TierLabel(d), again)
		}
	}
	switch {
	case property == topology.ArgType && q.Args[topology.ArgType] == nil && found == topology.TypeQuorum:
		return "set SIDECAR_QUEUE_TYPE=quorum; this virtual host may turn declarations without a type into quorum queues, " +
			"then delete the ones that were declared so"
	case property == topology.ArgType:
		return fmt.Sprintf("set SIDECAR_QUEUE_TYPE=%s, or %s", found, again)
	// the error of 3.10 for a classic queue
	case property == topology.ArgOverflow && q.Args[topology.ArgType] != nil && found == absentValue:
		return "set SIDECAR_QUEUE_TYPE=classic if it is a classic queue, or " + again
	}
	return again
}

func fixExchange(x topology.Exchange, property, found string) string {
	if property == "type" && x.Shared {
		return fmt.Sprintf("set SIDECAR_EXCHANGE_TYPE=%s, or use another SIDECAR_EXCHANGE", found)
	}
	return "delete the exchange, or use another name: an exchange cannot be changed"
}

// permissionFinding says which right is missing, and gives the line that grants everything the plan needs. name is
// the object the request was about, needs the right it takes where the broker does not name it.
func permissionFinding(p *topology.Plan, title, name, needs string, mode topology.Mode, refusal *amqp.Error) Finding {
	d := denied(refusal)
	if d.permission == "" && d.resource != "" && d.resource != name {
		needs = "write" // to the exchange that the declared queue dead-letters to
	}
	if mode == topology.ModeDeclare {
		needs = cmp.Or(d.permission, needs)
	} // else: asked whether something is there, 4.3 names the right to declare it, which is more than it takes
	fix := "widen the user's permissions, at least to: " + p.Permissions(mode).Command(d.vhost, d.user)
	if mode == topology.ModeDeclare {
		fix += "; or declare the objects some other way and set SIDECAR_TOPOLOGY_MODE=verify"
	}
	return Finding{
		Object: title, Problem: ProblemPermission, Found: "access refused", Fix: fix,
		Wanted: fmt.Sprintf("%s permission on %q", needs, cmp.Or(d.resource, name)),
	}
}
