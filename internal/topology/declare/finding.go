package declare

import (
	"fmt"

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
	s := fmt.Sprintf("%s: %s", f.Object, f.Problem)
	if f.Wanted != "" {
		s += ", wanted " + f.Wanted
	}
	if f.Found != "" {
		s += ", found " + f.Found
	}
	if f.Fix != "" {
		s += ": " + f.Fix
	}
	return s
}

func queueObject(name string) string    { return fmt.Sprintf("queue %q", name) }
func exchangeObject(name string) string { return fmt.Sprintf("exchange %q", name) }

func bindingObject(b topology.Binding) string {
	return fmt.Sprintf("binding of queue %q to exchange %q with key %q", b.Queue, b.Exchange, b.Key)
}

// Unroutable is the finding of a mandatory publish that was returned.
func Unroutable(p *topology.Plan, exchange, key string) Finding {
	f := Finding{
		Object: fmt.Sprintf("route %q of exchange %q", key, exchange), Problem: ProblemMissing, Wanted: "a queue at its end",
		Found: "a message published there was returned",
		Fix: "`sidecar run` with SIDECAR_TOPOLOGY_MODE=declare makes it; or import what `sidecar plan --format " +
			"definitions` prints",
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
