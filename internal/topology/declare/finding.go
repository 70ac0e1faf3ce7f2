package declare

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// Problem is the kind of a finding.
type Problem string

// The problems.
const (
	ProblemMissing    Problem = "missing"    // the object is not there, and may not be created or could not be
	ProblemDrift      Problem = "drift"      // it is there with another property
	ProblemPermission Problem = "permission" // we may not do what is needed
	ProblemRefused    Problem = "refused"    // the broker refuses for another reason
	ProblemLeftover   Problem = "leftover"   // no setting names it any more
	ProblemUnseen     Problem = "unseen"     // whether it is as planned cannot be seen
	ProblemVersion    Problem = "version"    // the broker is too old for the plan
)

// Finding is something in the broker that is not as planned. It is text for people; it holds no secret.
type Finding struct {
	Judgement topology.Judgement `json:"severity"` // whether messages may be consumed all the same
	Object    string             `json:"object"`   // e.g. `queue "wms.queue.wms-cincout"`
	Problem   Problem            `json:"problem"`
	Property  string             `json:"property"` // of ProblemDrift: the arguments or properties that differ
	Wanted    string             `json:"wanted"`   // what the plan needs
	Found     string             `json:"found"`    // what the broker has, or said
	Reason    string             `json:"reason"`   // of ProblemDrift: what the difference comes to
	Fix       string             `json:"fix"`      // what to do about it; empty: nothing has to be done
	Declared  bool               `json:"-"`        // of ProblemMissing: mode declare declares it
}

// String puts a finding into one line.
func (f Finding) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s: %s", f.Object, f.Problem)
	for _, part := range [][2]string{{", wanted ", f.Wanted}, {", found ", f.Found}, {": ", f.Reason}, {": ", f.Fix}} {
		if part[1] != "" {
			s.WriteString(part[0] + part[1])
		}
	}
	return s.String()
}

// About reports whether f is about the object with that title, alone or with others.
func (f Finding) About(title string) bool {
	return strings.Contains(", "+f.Object+", ", ", "+title+", ")
}

// Blocking are the findings by which a retried or parked message might be lost: messages must not be consumed.
func Blocking(all []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f Finding) bool { return f.Judgement != topology.Breaks })
}

// Differs is the finding of a property.
func Differs(d topology.Difference) Finding {
	return Finding{
		Judgement: d.Judgement, Object: d.Object, Problem: ProblemDrift, Property: d.Property,
		Wanted: d.Property + " " + written(d.Wanted), Found: written(d.Found), Reason: d.Reason, Fix: d.Fix,
	}
}

// written is the value of a property in the broker's words.
func written(value any) string {
	switch value {
	case nil:
		return "none"
	case "":
		return `""`
	}
	return fmt.Sprint(value)
}

// tooLong is the finding of a property whose value is cut off, because the broker's answers have 255 bytes.
func tooLong(o *object, d drift) Finding {
	return Finding{
		Object: o.title, Problem: ProblemDrift, Property: d.property,
		Wanted: d.property + " " + written(o.properties[d.property]), Found: "unknown",
		Reason: "the names are so long that the broker's answer ends before the value",
		Fix:    say("{mode}=none consumes without comparing, or use shorter names"),
	}
}

// merge makes one finding of those with one reason and one fix: of the properties of an object, and of missing
// permissions, which one line grants for all objects.
func merge(all []Finding) []Finding {
	var merged []Finding
	for _, f := range all {
		i := slices.IndexFunc(merged, func(m Finding) bool {
			permission := f.Problem == ProblemPermission
			property := f.Problem == ProblemDrift && m.Object == f.Object && m.Reason == f.Reason
			return m.Problem == f.Problem && m.Fix == f.Fix && (permission || property)
		})
		if i < 0 {
			merged = append(merged, f)
			continue
		}
		m := &merged[i]
		if f.Problem == ProblemDrift {
			m.Property, m.Found = m.Property+", "+f.Property, m.Found+", "+f.Found
		} else {
			m.Object += ", " + f.Object
		}
		if !strings.Contains(m.Wanted, f.Wanted) {
			m.Wanted += ", " + f.Wanted
		}
	}
	return merged
}

var (
	fixRun     = say("`sidecar run` with {mode}=declare (the default) makes what is missing")
	fixMissing = fixRun + "; or import what `sidecar plan --format definitions` prints"
)

// say fills in what is set beside a plan file, too.
func say(text string) string { return (&topology.Plan{}).Say(text) }

// Unroutable is the finding of a mandatory publish that ended with err because it reached no queue: the one of known
// that is about an object of its route, if there is one. An error that is not about the exchange does not say which
// object it is.
func Unroutable(p *topology.Plan, exchange, key string, err error, known []Finding) Finding {
	f := Finding{
		Object: fmt.Sprintf("route %q of exchange %q", key, exchange), Problem: ProblemMissing,
		Wanted: "a queue at its end", Found: "a message published there was returned", Fix: fixMissing,
	}
	route := []string{topology.ExchangeTitle(exchange)}
	for _, r := range p.PublishRoutes() {
		if r.Exchange != exchange || r.Key != key {
			continue
		}
		b := topology.Binding{Exchange: exchange, Key: key, Queue: r.Queue}
		if f.Object, f.Wanted = b.Title(), "the binding"; exchange == "" {
			f.Object, f.Wanted = topology.QueueTitle(r.Queue), "a durable queue"
		}
		route = append(route, topology.QueueTitle(r.Queue))
		for _, b := range p.Bindings { // an exchange that does not route by key has one with another key
			if b.Exchange == exchange && b.Queue == r.Queue {
				route = append(route, b.Title())
			}
		}
	}
	for _, k := range known {
		if slices.ContainsFunc(route, k.About) {
			return k
		}
	}
	if refusal, ok := errors.AsType[*amqp.Error](err); ok && refusal.Code == amqp.NotFound {
		for _, o := range objects(p) {
			if o.title == route[0] {
				return o.absent()
			}
		}
	}
	return f
}

// TooOld is the finding of a broker that ignores what the plan rests on; ok is false for one that does not. It has to
// be known before anything is declared or rejected.
func TooOld(s Session, p *topology.Plan) (f Finding, ok bool) {
	f = Finding{Object: "broker", Problem: ProblemVersion, Wanted: "RabbitMQ 4.3 or newer", Found: written(s.Version())}
	queue, upgrade := topology.QueueTitle(p.Queue), ", or upgrade every node of the broker"
	switch {
	case p.DelaysItself():
		f.Reason = "it ignores the delays of " + queue + ": a rejected message would be delivered again at once, " +
			"thousands of times"
		f.Fix = p.Say("another topology, such as fanout with {queue-type}=quorum") + upgrade
	case p.Attempt > topology.MaxHeld:
		f.Reason = "an attempt can take longer than its half hour, after which it delivers a message of " + queue +
			" again and again"
		f.Fix = topology.FixAttempt + " at most 25m" + upgrade
	default:
		return f, false
	}
	return f, !s.AtLeast(4, 3)
}

// Undelayed is the finding of a rejected message that was delivered again at once.
func Undelayed(p *topology.Plan) Finding {
	return Finding{
		Object: topology.QueueTitle(p.Queue), Problem: ProblemDrift, Property: topology.ArgRetryType,
		Wanted: topology.ArgRetryType + " failed", Found: "a rejected message was delivered again at once",
		Reason: "it delays nothing, or for less than 0.1 s: by its arguments or a policy, or because a node of the cluster " +
			"is older than RabbitMQ 4.3. Nothing is consumed for 15 s, then it is tried again",
		Fix: p.FixDelay(),
	}
}

// MissingBinding is the finding of a binding that the broker does not have. instead describes what it has in its place.
func MissingBinding(b topology.Binding, instead string, mode topology.Mode) Finding {
	f := Finding{
		Object: b.Title(), Problem: ProblemMissing, Wanted: "the binding", Found: instead, Fix: fixMissing,
		Reason: "messages that it would route do not arrive",
	}
	if mode == topology.ModeDeclare {
		f.Judgement, f.Reason, f.Fix = topology.Harmless, "sidecar run declares it", ""
	}
	return f
}

// absent is the finding of an object that does not exist.
func (o *object) absent() Finding {
	f := Finding{
		Object: o.title, Problem: ProblemMissing, Wanted: "a durable " + o.kind, Found: "nothing", Fix: fixMissing,
		Declared: o.active != nil,
	}
	if o.active == nil {
		f.Wanted, f.Fix = "an exchange of any type", say("its owner has to declare it; {bindings} names it")
	}
	if o.queue != nil && o.queue.Beside { // which sidecar plan cannot print: it has not seen the queue beside it
		f.Fix = fixRun
	}
	return f
}

// refused reports a refusal that is neither "missing" nor a matter of permissions.
func (e *ensurer) refused(title, wanted string, refusal *amqp.Error) {
	reason, fix := "", "see the broker's log"
	switch {
	case NodeDown(refusal.Reason):
		reason, fix = "the node of the broker that keeps it is down; it is there again when that node is", ""
	case atLimit(refusal):
		fix = "raise that limit, or delete queues that are not needed"
	case strings.Contains(refusal.Reason, "invalid arg"):
		fix = e.plan.Say("{queue-arguments} without that argument, or another {queue-type}")
	case refusal.Code == amqp.ResourceLocked:
		fix = "use a queue that is not exclusive: another connection holds this one, and the broker deletes it with that " +
			"connection"
	}
	e.findings = append(e.findings, Finding{
		Object: title, Problem: ProblemRefused, Wanted: wanted,
		Found: fmt.Sprintf("%d %s", refusal.Code, refusal.Reason), Reason: reason, Fix: fix,
	})
}

// forbidden reports which right is missing, with the line that grants everything the plan needs. name is the object the
// request was about, needs the right it takes where the broker does not name it.
func (e *ensurer) forbidden(title, name, needs string, refusal *amqp.Error) {
	d := denied(refusal)
	if d.permission == "" && d.resource != "" && d.resource != name {
		needs = "write" // to the exchange that the declared queue dead-letters to
	}
	fix := "widen the user's permissions, at least to: " + e.plan.Permissions(e.mode).Command(d.vhost, d.user)
	if e.mode == topology.ModeDeclare {
		needs = cmp.Or(d.permission, needs)
		fix += say("; or declare the objects some other way and set {mode}=verify")
	} // else: asked whether something is there, 4.3 names the right to declare it, which is more than it takes
	e.findings = append(e.findings, Finding{
		Object: title, Problem: ProblemPermission, Found: "access refused", Fix: fix,
		Wanted: fmt.Sprintf("%s permission on %q", needs, cmp.Or(d.resource, name)),
	})
}
