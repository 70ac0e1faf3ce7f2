package declare

import (
	"context"
	"fmt"
	"maps"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// Ensure checks whether the broker would keep every message that the plan retries or parks, and in ModeDeclare creates
// missing objects. Existing objects are never changed and never deleted: a difference is a Finding, and with findings
// messages must not be consumed. An error is a failure of the session and says nothing about the topology.
//
// In ModeVerify it declares passively, and compares properties where the user's rights allow; bindings cannot be
// seen over AMQP, see Plan.WithoutReject. It publishes nothing: a connection that publishes during a memory or disk
// alarm is not read any more.
func Ensure(ctx context.Context, s Session, p *topology.Plan, mode topology.Mode) ([]Finding, error) {
	if mode == topology.ModeNone {
		return nil, nil
	}
	e := newEnsurer(s, p, mode)
	defer e.close(ctx)
	if err := e.each(ctx); err != nil {
		return nil, err
	}
	return e.findings, nil
}

// EnsureAtOnce is Ensure for a topology that most likely has no findings, in one round trip instead of one per object:
// it sends the same requests without waiting for the answers in between. True means that Ensure would have no findings.
// False says nothing: Ensure then finds which object was refused, and why.
//
// All requests together have the time that Ensure gives to each, and the session is lost when it runs out.
func EnsureAtOnce(ctx context.Context, s Session, p *topology.Plan, mode topology.Mode) bool {
	if mode == topology.ModeNone {
		return true
	}
	var questions []question
	e := newEnsurer(s, p, mode)
	e.note = func(q question) { questions = append(questions, q) }
	if err := e.each(ctx); err != nil {
		return false
	}
	e.note = nil
	// The broker executes the requests of a channel in order, and none after a refusal: the answer to the last request is
	// the answer to all.
	refusal, err := e.ask(ctx, "check the topology", func(ch *amqp.Channel, _ bool) error {
		for i, q := range questions {
			if err := q(ch, i < len(questions)-1); err != nil {
				return err
			}
		}
		return nil
	})
	go e.close(context.WithoutCancel(ctx)) // it ends with the session at the latest: no caller has to wait for it
	return refusal == nil && err == nil
}

type ensurer struct {
	prober
	p        *topology.Plan
	mode     topology.Mode
	findings []Finding
	reported map[string]bool // objects that have a finding
}

func newEnsurer(s Session, p *topology.Plan, mode topology.Mode) *ensurer {
	return &ensurer{prober: prober{s: s}, p: p, mode: mode, reported: map[string]bool{}}
}

// each checks every object and binding of the plan.
func (e *ensurer) each(ctx context.Context) error {
	for _, x := range e.p.Exchanges {
		if err := e.exchange(ctx, x); err != nil {
			return err
		}
	}
	for i := range e.p.Queues {
		if err := e.queue(ctx, &e.p.Queues[i]); err != nil {
			return err
		}
	}
	if e.mode == topology.ModeDeclare {
		for _, b := range e.p.Bindings {
			if err := e.binding(ctx, b); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *ensurer) report(f Finding) {
	e.findings = append(e.findings, f)
	e.reported[f.Object] = true
}

func (e *ensurer) exchange(ctx context.Context, x topology.Exchange) error {
	_, err := e.look(ctx, exchangeOf(x))
	return err
}

func (e *ensurer) queue(ctx context.Context, q *topology.Queue) error {
	o := queueOf(q)
	before := len(e.findings)
	compared, err := e.look(ctx, o)
	if err == nil && len(e.findings) > before {
		if f := e.findings[len(e.findings)-1]; f.Problem == ProblemDrift {
			property, _, _ := strings.Cut(f.Wanted, " ")
			return e.moreDrift(ctx, q, property, f.Found)
		}
	}
	if err != nil || !compared || q.Args[topology.ArgType] != nil {
		return err
	}
	// A virtual host can make quorum queues of declarations that name no type. Asked this way the queue is there
	// already, and one that was declared without a type is the same as a classic one.
	typed := amqp.Table{topology.ArgType: topology.TypeClassic}
	maps.Copy(typed, q.Args)
	refusal, err := e.ask(ctx, "compare "+o.title, activeQueue(q.Name, typed))
	if err == nil && refusal != nil {
		e.compare(o, refusal)
	}
	return err
}

// look checks one object. compared is true when it exists and its properties are as wanted.
func (e *ensurer) look(ctx context.Context, o object) (compared bool, err error) {
	if e.mode != topology.ModeDeclare || o.active == nil {
		refusal, err := e.ask(ctx, "look for "+o.title, o.passive)
		if err != nil {
			return false, err
		}
		if refusal != nil {
			e.absent(o, refusal)
			return false, nil
		}
		if o.active == nil {
			return false, nil
		}
	}
	refusal, err := e.ask(ctx, "declare "+o.title, o.active)
	switch {
	case err != nil:
		return false, err
	case refusal == nil:
		return true, nil
	case refusal.Code == amqp.AccessRefused:
		return false, e.mayNotDeclare(ctx, o, refusal)
	}
	e.compare(o, refusal)
	return false, nil
}

// mayNotDeclare: a passive declare is enough in verify mode, and for an exchange that another service declares.
func (e *ensurer) mayNotDeclare(ctx context.Context, o object, refusal *amqp.Error) error {
	if e.mode != topology.ModeDeclare {
		return nil // it exists, see look
	}
	if o.spare {
		absent, err := e.ask(ctx, "look for "+o.title, o.passive)
		if err != nil || absent == nil {
			return err
		}
	}
	e.report(permissionFinding(e.p, o.title, o.name, o.needs, e.mode, refusal))
	return nil
}

// absent reports an object that a passive question did not find.
func (e *ensurer) absent(o object, refusal *amqp.Error) {
	if refusal.Code != amqp.NotFound {
		e.compare(o, refusal)
		return
	}
	f := Finding{
		Object: o.title, Problem: ProblemMissing, Wanted: "a durable " + o.kind, Found: "nothing",
		Fix: "`sidecar run` with SIDECAR_TOPOLOGY_MODE=declare creates it; or import what `sidecar plan --format " +
			"definitions` prints",
	}
	if o.active == nil {
		f.Wanted, f.Fix = "an exchange of any type", "its owner has to declare it; SIDECAR_BINDINGS names it"
	}
	e.report(f)
}

// compare reports a refusal that is neither "missing" nor a matter of who may declare.
func (e *ensurer) compare(o object, refusal *amqp.Error) {
	property, found, ok := drifted(refusal)
	if property == topology.ArgType && found == absentValue {
		found = topology.TypeClassic // what older brokers call none
	}
	switch {
	case ok:
		vhost := first(inVhost, refusal.Reason)
		e.report(Finding{
			Object: o.title, Problem: ProblemDrift, Wanted: fmt.Sprintf("%s %s", property, o.wanted(property)),
			Found: found, Fix: o.fix(property, found, vhost),
		})
	case refusal.Code == amqp.AccessRefused:
		e.report(permissionFinding(e.p, o.title, o.name, "read", e.mode, refusal))
	default:
		e.report(Finding{
			Object: o.title, Problem: ProblemRefused, Wanted: "a durable, shared " + o.kind,
			Found: fmt.Sprintf("%d %s", refusal.Code, refusal.Reason), Fix: "see the broker's log",
		})
	}
}

func (e *ensurer) binding(ctx context.Context, b topology.Binding) error {
	title := bindingObject(b)
	refusal, err := e.ask(ctx, "declare "+title, func(ch *amqp.Channel, noWait bool) error {
		return ch.QueueBind(b.Queue, b.Key, b.Exchange, noWait, b.Args)
	})
	if err != nil || refusal == nil {
		return err
	}
	if refusal.Code == amqp.AccessRefused && e.p.SpareBinding(b) {
		return nil // messages are parked as mandatory, so a missing binding returns them
	}
	known := e.reported[queueObject(b.Queue)] || e.reported[exchangeObject(b.Exchange)]
	switch {
	case refusal.Code == amqp.AccessRefused:
		needs, resource := "write", denied(refusal).resource
		if resource == b.Exchange {
			needs = "read"
		}
		e.report(permissionFinding(e.p, title, resource, needs, e.mode, refusal))
	case refusal.Code == amqp.NotFound && known: // the finding of the object says it
	default:
		e.report(Finding{
			Object: title, Problem: ProblemRefused, Wanted: "the binding",
			Found: fmt.Sprintf("%d %s", refusal.Code, refusal.Reason), Fix: "see the broker's log",
		})
	}
	return nil
}
