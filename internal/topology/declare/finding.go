package declare

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// Problem is the kind of a finding.
type Problem string

// The problems.
const (
	ProblemMissing    Problem = "missing"    // the object is not there, and may not be created or could not be
	ProblemDrift      Problem = "drift"      // it is there with other properties
	ProblemPermission Problem = "permission" // we may not do what is needed
	ProblemRefused    Problem = "refused"    // the broker refuses for another reason
)

// Finding is an object in the broker that differs from the plan. While there is a finding, a retried or parked message
// might be lost: messages must not be consumed. It is text for people; it holds no secret.
type Finding struct {
	Object  string // e.g. `queue "wms.queue.wms-cincout"`
	Problem Problem
	Wanted  string // what the plan needs
	Found   string // what the broker has, or said
	Fix     string // what to do about it
}

// String puts a finding into one line.
func (f Finding) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s: %s", f.Object, f.Problem)
	for _, part := range [][2]string{{", wanted ", f.Wanted}, {", found ", f.Found}, {": ", f.Fix}} {
		if part[1] != "" {
			s.WriteString(part[0] + part[1])
		}
	}
	return s.String()
}

func queueObject(name string) string    { return fmt.Sprintf("queue %q", name) }
func exchangeObject(name string) string { return fmt.Sprintf("exchange %q", name) }

func bindingObject(b topology.Binding) string {
	return fmt.Sprintf("binding of queue %q to exchange %q with key %q", b.Queue, b.Exchange, b.Key)
}

const fixMissing = "`sidecar run` with SIDECAR_TOPOLOGY_MODE=declare creates it; or import what `sidecar plan --format " +
	"definitions` prints"

// Unroutable is the finding of a mandatory publish that was returned.
func Unroutable(p *topology.Plan, exchange, key string) Finding {
	f := Finding{
		Object: fmt.Sprintf("route %q of exchange %q", key, exchange), Problem: ProblemMissing,
		Wanted: "a queue at its end", Found: "a message published there was returned", Fix: fixMissing,
	}
	for _, r := range p.PublishRoutes() {
		switch {
		case r.Exchange != exchange || r.Key != key:
		case exchange == "":
			f.Object, f.Wanted = queueObject(r.Queue), "a durable queue"
		default:
			f.Object, f.Wanted = bindingObject(topology.Binding{Exchange: exchange, Key: key, Queue: r.Queue}), "the binding"
		}
	}
	return f
}

// missing reports an object that is not there.
func (e *ensurer) missing(o *object) {
	f := Finding{
		Object: o.title, Problem: ProblemMissing, Wanted: "a durable " + o.kind, Found: "nothing", Fix: fixMissing,
	}
	if o.active == nil {
		f.Wanted, f.Fix = "an exchange of any type", "its owner has to declare it; SIDECAR_BINDINGS names it"
	}
	e.findings = append(e.findings, f)
}

// refused reports a refusal that is neither "missing" nor a matter of permissions.
func (e *ensurer) refused(title, wanted string, refusal *amqp.Error) {
	e.findings = append(e.findings, Finding{
		Object: title, Problem: ProblemRefused, Wanted: wanted,
		Found: fmt.Sprintf("%d %s", refusal.Code, refusal.Reason), Fix: "see the broker's log",
	})
}

// forbidden reports which right is missing, with the line that grants everything the plan needs. name is the object the
// request was about, needs the right it takes where the broker does not name it.
func (e *ensurer) forbidden(title, name, needs string, refusal *amqp.Error) {
	d := denied(refusal)
	if d.permission == "" && d.resource != "" && d.resource != name {
		needs = "write" // to the exchange that the declared queue dead-letters to
	}
	fix := "widen the user's permissions, at least to: " + e.p.Permissions(e.mode).Command(d.vhost, d.user)
	if e.mode == topology.ModeDeclare {
		needs = cmp.Or(d.permission, needs)
		fix += "; or declare the objects some other way and set SIDECAR_TOPOLOGY_MODE=verify"
	} // else: asked whether something is there, 4.3 names the right to declare it, which is more than it takes
	e.findings = append(e.findings, Finding{
		Object: title, Problem: ProblemPermission, Found: "access refused", Fix: fix,
		Wanted: fmt.Sprintf("%s permission on %q", needs, cmp.Or(d.resource, name)),
	})
}

// fix is what to do about a property that differs. The sidecar never deletes a queue. Where a setting can follow the
// broker, it is named first.
func (o *object) fix(property, found, vhost string) string {
	q := o.queue
	switch {
	case q == nil && property == "type" && o.spare:
		return fmt.Sprintf("set SIDECAR_EXCHANGE_TYPE=%s, or use another SIDECAR_EXCHANGE", found)
	case q == nil:
		return "delete the exchange, or use another name: an exchange cannot be changed"
	case property == topology.ArgType && q.Args[topology.ArgType] == nil && found == topology.TypeQuorum:
		return "set SIDECAR_QUEUE_TYPE=quorum; this virtual host may turn declarations without a type into quorum queues, " +
			"then delete the ones that were declared so"
	}
	again := fmt.Sprintf("empty the queue and delete it (rabbitmqctl delete_queue -p %s %s --if-empty --if-unused): it "+
		"is then declared as wanted", cmp.Or(vhost, "VHOST"), q.Name)
	delay, err := time.ParseDuration(found + "ms")
	switch {
	case q.Kind == topology.KindRetry && property == topology.ArgTTL && err == nil:
		return fmt.Sprintf("set the delay to %s, or %s", topology.TierLabel(delay), again)
	case property == topology.ArgType:
		return fmt.Sprintf("set SIDECAR_QUEUE_TYPE=%s, or %s", found, again)
	// the error of 3.10 for a classic queue
	case property == topology.ArgOverflow && q.Args[topology.ArgType] != nil && found == absentValue:
		return "set SIDECAR_QUEUE_TYPE=classic if it is a classic queue, or " + again
	}
	return again
}
