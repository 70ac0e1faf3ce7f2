// Package declare makes and watches the objects of a topology.Plan in the broker. Ensure declares or compares them,
// Preflight checks the user's permissions, and Depths and Watcher count the messages that wait. None of them changes or
// deletes an object that exists, or handles messages.
package declare

import (
	"context"
	"slices"

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
	for _, o := range objects(p) {
		e.object(ctx, &o)
	}
	if mode == topology.ModeDeclare {
		for _, b := range p.Bindings {
			e.binding(ctx, b)
		}
	}
	return e.findings, e.err
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
	for _, o := range objects(p) {
		for _, c := range o.checks(mode) {
			questions = append(questions, c.question)
		}
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
	p        *topology.Plan
	mode     topology.Mode
	findings []Finding
}

func newEnsurer(s Session, p *topology.Plan, mode topology.Mode) *ensurer {
	return &ensurer{prober: prober{s: s}, p: p, mode: mode}
}

// object checks whether an object is there, and whether its properties are as wanted.
func (e *ensurer) object(ctx context.Context, o *object) {
	for _, c := range o.checks(e.mode) {
		if refusal := e.ask(ctx, c.verb+o.title, c.question); refusal != nil {
			e.refusal(ctx, o, c.verb == lookFor, refusal)
			return
		}
	}
}

// refusal makes findings of the broker's answer to a check, which was passive or not.
func (e *ensurer) refusal(ctx context.Context, o *object, passive bool, refusal *amqp.Error) {
	_, _, differs := drifted(refusal)
	switch {
	case differs:
		e.drift(ctx, o, refusal)
	case refusal.Code == amqp.NotFound && passive:
		e.missing(o)
	case refusal.Code == amqp.AccessRefused && passive:
		e.forbidden(o.title, o.name, "read", refusal)
	case refusal.Code == amqp.AccessRefused && e.mode != topology.ModeDeclare:
		// it exists, as the passive check before has shown
	case refusal.Code == amqp.AccessRefused && o.spare && e.ask(ctx, lookFor+o.title, o.passive) == nil:
		// it exists, and another service may have declared it
	case refusal.Code == amqp.AccessRefused:
		e.forbidden(o.title, o.name, o.needs, refusal)
	default:
		e.refused(o.title, "a durable, shared "+o.kind, refusal)
	}
}

func (e *ensurer) binding(ctx context.Context, b topology.Binding) {
	title := bindingObject(b)
	refusal := e.ask(ctx, "declare "+title, bind(b))
	if refusal == nil {
		return
	}
	known := slices.ContainsFunc(e.findings, func(f Finding) bool {
		return f.Object == queueObject(b.Queue) || f.Object == exchangeObject(b.Exchange)
	})
	switch {
	case refusal.Code == amqp.AccessRefused && e.p.SpareBinding(b):
		// messages are parked as mandatory, so a missing binding returns them
	case refusal.Code == amqp.AccessRefused:
		needs, resource := "write", denied(refusal).resource
		if resource == b.Exchange {
			needs = "read"
		}
		e.forbidden(title, resource, needs, refusal)
	case refusal.Code == amqp.NotFound && known: // the finding of the object says it
	default:
		e.refused(title, "the binding", refusal)
	}
}
