// Package declare makes and watches the objects of a topology.Plan in the broker. Ensure declares or compares them,
// Preflight checks the user's permissions, and Measure counts the messages that wait. None of them changes or
// deletes an object that exists, or handles messages.
package declare

import (
	"context"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// Report is what Ensure found.
type Report struct {
	// Plan uses what exists as it is, see topology.Plan.AsFound. It is the plan that was asked for where nothing differs.
	Plan *topology.Plan

	// Findings are everything that is not as planned. While one is Blocking, messages must not be consumed.
	Findings []Finding

	// Undeclared are bindings that others declare too, and that the user may not. Whether they exist is not known: without
	// them a message that is published as mandatory is returned.
	Undeclared []Finding

	declared []object        // that were missing
	missing  map[string]bool // objects that did not exist, by title, also those that are declared now
	found    topology.Found  // what did exist; empty: not compared
}

// Blocking are the findings by which a retried or parked message might be lost.
func (r *Report) Blocking() []Finding { return Blocking(r.Findings) }

// Ensure checks whether the broker would keep every message that the plan retries or parks, and in ModeDeclare creates
// missing objects. Existing objects are never changed and never deleted: they are used as they are, or a finding is
// Blocking. An error is a failure of the session and says nothing about the topology.
//
// In ModeVerify it compares properties where the user's rights allow, and otherwise checks that the objects exist;
// bindings cannot be seen over AMQP, see Plan.WithoutReject. It publishes nothing: a connection that publishes during a
// memory or disk alarm is not read any more.
func Ensure(ctx context.Context, s Session, p *topology.Plan, mode topology.Mode) (Report, error) {
	const tries = 3 // replicas that declare at the same moment disturb each other once, or twice
	var declared []object
	for try := 1; ; try++ {
		e := newEnsurer(s, p, mode)
		r, err := e.ensure(ctx)
		declared = append(declared, e.declared...)
		if r.declared, r.missing = declared, e.missing; !e.overtaken || try == tries {
			if err == nil {
				r.found = e.found
			}
			return r, err
		}
	}
}

// Inspect is Ensure for what shall run in a mode, and declares nothing.
func Inspect(ctx context.Context, s Session, p *topology.Plan, mode topology.Mode) (Report, error) {
	e := newEnsurer(s, p, topology.ModeVerify)
	e.later = mode == topology.ModeDeclare
	return e.ensure(ctx)
}

func (e *ensurer) ensure(ctx context.Context) (Report, error) {
	if f, old := TooOld(e.s, e.p); old {
		return Report{Plan: e.p, Findings: []Finding{f}}, nil
	}
	if e.mode == topology.ModeNone {
		return Report{Plan: e.p}, nil
	}
	defer e.close(ctx)
	e.inspectAll(ctx)
	for _, o := range objects(e.plan) {
		e.make(ctx, &o)
	}
	if e.mode == topology.ModeDeclare {
		for _, b := range e.plan.Bindings {
			e.binding(ctx, b)
		}
	}
	return Report{Plan: e.plan, Findings: merge(e.findings), Undeclared: e.undeclared}, e.err
}

// Compare reports in one round trip whether every queue and exchange of p exists and is as the plan has it, or as it
// was found; in ModeDeclare it declares the bindings, too. It sends all requests without waiting for the answers in
// between. True means that Ensure would have no findings, or those it had when it returned p. After false only Ensure
// can say which object was refused.
//
// All requests together have the time that Ensure gives to each, and the session is lost when it runs out.
func Compare(ctx context.Context, s Session, p *topology.Plan, mode topology.Mode) bool {
	if _, old := TooOld(s, p); old {
		return false
	}
	if mode == topology.ModeNone {
		return true
	}
	var questions []question
	for _, o := range objects(p) {
		questions = append(questions, o.questions()...)
	}
	if mode == topology.ModeDeclare {
		for _, b := range p.Bindings {
			questions = append(questions, bind(b))
		}
	}
	e := newEnsurer(s, p, mode)
	// The broker executes the requests of a channel in order, and none after a refusal: the answer to the last request is
	// the answer to all.
	refusal := e.ask(ctx, "check the topology", func(ch *amqp.Channel, _ bool) error {
		for i, q := range questions {
			if err := q(ch, i < len(questions)-1); err != nil {
				return err
			}
		}
		return nil
	})
	go e.close(context.WithoutCancel(ctx)) // it ends with the session at the latest: no caller has to wait for it
	return refusal == nil && e.err == nil
}

type ensurer struct {
	prober
	p          *topology.Plan
	mode       topology.Mode
	later      bool // what is missing can be declared afterwards
	found      topology.Found
	plan       *topology.Plan  // p as the objects were found
	missing    map[string]bool // objects that do not exist, by title
	overtaken  bool            // an object is not any more what it was when it was inspected
	declared   []object
	findings   []Finding
	undeclared []Finding
}

func newEnsurer(s Session, p *topology.Plan, mode topology.Mode) *ensurer {
	return &ensurer{
		prober: prober{s: s}, p: p, plan: p, mode: mode, missing: map[string]bool{},
		found: topology.Found{
			Exchanges: map[string]amqp.Table{}, Queues: map[string]amqp.Table{},
			Unseen: map[string]bool{}, Barred: map[string]bool{}, Major: s.Major(),
		},
	}
}

// inspectAll inspects the objects of the plan, and those that it needs beside what exists.
func (e *ensurer) inspectAll(ctx context.Context) {
	inspected := map[string]bool{}
	if e.p.AutoType { // its type decides how the others are planned
		own := queueOf(e.p.OwnQueue())
		inspected[own.title] = true
		e.inspect(ctx, &own)
		e.found.NewQuorum = e.missing[own.title] && e.newQuorum(ctx, own.queue)
		e.plan, _ = e.p.AsFound(e.found)
	}
	for {
		var differences []topology.Difference
		before := len(inspected)
		for _, o := range objects(e.plan) {
			if !inspected[o.title] {
				inspected[o.title] = true
				e.inspect(ctx, &o)
			}
		}
		if e.plan, differences = e.p.AsFound(e.found); len(inspected) == before || e.err != nil {
			for _, d := range differences {
				e.findings = append(e.findings, Differs(d))
			}
			return
		}
	}
}

func (e *ensurer) inspect(ctx context.Context, o *object) {
	var properties amqp.Table
	var refusal *amqp.Error
	switch {
	case o.active == nil:
		refusal = e.ask(ctx, lookFor+o.title, o.passive)
		e.found.Unseen[o.title] = refusal == nil
	case o.queue != nil:
		properties, refusal = e.inspectQueue(ctx, o.name, o.properties)
		e.found.Queues[o.name] = properties
	default:
		properties, refusal = e.inspectExchange(ctx, o.name, o.properties)
		e.found.Exchanges[o.name] = properties
	}
	absent := properties == nil && !e.found.Unseen[o.title]
	mayNot := refusal != nil && refusal.Code == amqp.AccessRefused
	switch {
	case o.queue != nil && o.queue.Beside && !e.later && (mayNot || absent && e.mode != topology.ModeDeclare):
		e.found.Barred[o.title] = true
	case refusal != nil:
		e.refusal(ctx, o, refusal)
	default:
		e.missing[o.title] = absent
	}
}

// make declares an object that is missing, or reports it.
func (e *ensurer) make(ctx context.Context, o *object) {
	if !e.missing[o.title] {
		return
	}
	if e.mode != topology.ModeDeclare || o.active == nil {
		e.findings = append(e.findings, o.absent())
		return
	}
	refusal := e.ask(ctx, "declare "+o.title, o.active)
	switch {
	case e.err != nil:
	case refusal == nil: // without a type the virtual host decides: if it made another one, the next try reports that
		e.declared = append(e.declared, *o)
		e.overtaken = e.overtaken || o.untyped() && e.ask(ctx, lookFor+o.title, o.guarded) != nil
	case refusal.Code == amqp.AccessRefused:
		e.forbidden(o.title, o.name, o.needs, refusal)
	default:
		e.overtaken = true
		e.refused(o.title, "a durable "+o.kind, refusal)
	}
}

func (e *ensurer) binding(ctx context.Context, b topology.Binding) {
	title := b.Title()
	refusal := e.ask(ctx, "declare "+title, bind(b))
	if refusal == nil {
		return
	}
	known := slices.ContainsFunc(e.findings, func(f Finding) bool {
		return f.Object == topology.QueueTitle(b.Queue) || f.Object == topology.ExchangeTitle(b.Exchange)
	})
	switch {
	case refusal.Code == amqp.AccessRefused:
		needs, resource := "write", denied(refusal).resource
		if resource == b.Exchange {
			needs = "read"
		}
		e.forbidden(title, resource, needs, refusal)
		if last := len(e.findings) - 1; e.p.SpareBinding(b) {
			e.undeclared, e.findings = append(e.undeclared, e.findings[last]), e.findings[:last]
		}
	case known && (refusal.Code == amqp.NotFound || refusal.Code == amqp.ResourceLocked):
		// the finding of the object reports it
	default:
		e.overtaken = true
		e.refused(title, "the binding", refusal)
	}
}
