package declare

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// The broker checks permissions before anything else. So a request that it would refuse anyway shows whether a user has
// the right, and leaves nothing behind: a declaration that makes nothing (see argGuard), a consumer with a priority
// that is not a number, the removal of a binding that does not exist. A message is published and taken back.
const (
	noPriority = "none"
	probeKey   = "sidecar.permission-probe.no-binding-has-this-key"
)

// Preflight proves that the session's user may do everything that running the plan in a mode needs, without doing it:
// Ensure only checks rights to read. It publishes (and takes the messages back), so it must not run on a connection
// that consumes. Missing objects are findings of Ensure. An error is a failure of the session.
func Preflight(ctx context.Context, s Session, p *topology.Plan, mode topology.Mode) ([]Finding, error) {
	e := newEnsurer(s, p, mode)
	e.mayConsume(ctx)
	if mode == topology.ModeDeclare {
		e.mayConfigure(ctx)
		e.mayBind(ctx)
	}
	e.close(ctx)
	if e.err != nil {
		return nil, e.err
	}
	findings, err := MayPublish(ctx, s, p, mode)
	return merge(append(e.findings, findings...)), err
}

// MayPublish is the part of Preflight about publishing retries, parked and redriven messages: it tries each exchange.
// During a resource alarm the broker does not answer, and the error is that of Session.Try.
func MayPublish(ctx context.Context, s Session, p *topology.Plan, mode topology.Mode) ([]Finding, error) {
	e := newEnsurer(s, p, mode)
	asked := map[string]bool{}
	for _, r := range p.PublishRoutes() {
		if asked[r.Exchange] {
			continue
		}
		asked[r.Exchange] = true
		err := s.Try(ctx, &message.Publication{Exchange: r.Exchange, Key: r.Key})
		refusal, ok := errors.AsType[*amqp.Error](err)
		if err != nil && (!ok || !answers(refusal)) {
			return nil, fmt.Errorf("publish to exchange %q: %w", r.Exchange, err)
		}
		if ok && refusal.Code == amqp.AccessRefused { // a missing exchange is a finding of Ensure
			name := cmp.Or(r.Exchange, topology.DefaultExchange)
			e.forbidden("publishing to "+topology.ExchangeTitle(name), name, "write", refusal)
		}
	}
	return e.findings, nil
}

func (e *ensurer) mayConsume(ctx context.Context) {
	queue := e.p.Queue
	e.may(ctx, "consuming from "+topology.QueueTitle(queue), queue, "read", func(ch *amqp.Channel, _ bool) error {
		_, err := ch.Consume(queue, "", false, false, false, false, amqp.Table{"x-priority": noPriority})
		return err
	})
}

// mayConfigure asks for the objects that are this service's own. Where others declare one too, being there is enough:
// Ensure reports one that the user may not read.
func (e *ensurer) mayConfigure(ctx context.Context) {
	for _, o := range objects(e.p) {
		if o.active == nil {
			continue
		}
		if o.spare {
			if refusal := e.ask(ctx, lookFor+o.title, o.passive); refusal == nil || !absent(refusal) {
				continue
			}
		}
		e.may(ctx, "declaring "+o.title, o.name, o.needs, o.guarded)
	}
}

// mayBind deletes a binding that does not exist, which takes the same rights as making one.
func (e *ensurer) mayBind(ctx context.Context) {
	asked := map[topology.Route]bool{}
	for _, b := range e.p.Bindings {
		pair := topology.Route{Exchange: b.Exchange, Queue: b.Queue}
		if asked[pair] || e.p.SpareBinding(b) {
			continue
		}
		asked[pair] = true
		e.may(ctx, b.Title(), b.Queue, "write", func(ch *amqp.Channel, _ bool) error {
			return ch.QueueUnbind(b.Queue, probeKey, b.Exchange, nil)
		})
	}
}

// may asks something that the broker refuses in any case, and reports it when the user is the reason.
func (e *ensurer) may(ctx context.Context, title, name, needs string, q question) {
	refusal := e.ask(ctx, title, q)
	if refusal == nil || refusal.Code != amqp.AccessRefused {
		return
	}
	if d := denied(refusal); needs == "write" && d.resource != "" && d.resource != name {
		name, needs = d.resource, "read" // of the exchange in a binding
	}
	e.forbidden(title, name, needs, refusal)
}
