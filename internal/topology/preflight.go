package topology

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The broker looks at permissions before it looks at anything else. So what it would refuse anyway tells whether a user
// may do it, and leaves nothing behind: a declaration with an argument no broker takes, a message with an expiration
// that is no number, a consumer with a priority that is none, the end of a binding that nobody has.
const (
	noExpiration = "never"
	noPriority   = "none"
	noTTL        = int64(-1)
	probeKey     = "sidecar.permission-probe.no-binding-has-this-key"
)

// Preflight proves that the session's user may do everything that running the plan in a mode takes, without doing it:
// Ensure only tells what it may look at. It publishes (what the broker refuses), so it must not run on a connection that
// consumes. What is missing is for Ensure to say. An error is trouble with the session.
func Preflight(ctx context.Context, s Session, p *Plan, mode Mode) ([]Finding, error) {
	e := newEnsurer(s, p, mode)
	defer e.close(context.WithoutCancel(ctx))
	for _, look := range []func(context.Context) error{e.mayConsume, e.mayConfigure, e.mayBind, e.mayPublish} {
		if err := look(ctx); err != nil {
			return nil, err
		}
	}
	return e.findings, nil
}

// MayPublish is the part of Preflight about publishing retries, parked and redriven messages.
func MayPublish(ctx context.Context, s Session, p *Plan, mode Mode) ([]Finding, error) {
	e := newEnsurer(s, p, mode)
	defer e.close(context.WithoutCancel(ctx))
	err := e.mayPublish(ctx)
	return e.findings, err
}

func (e *ensurer) mayConsume(ctx context.Context) error {
	return e.may(ctx, "consuming from "+queueObject(e.p.Queue), e.p.Queue, "read", func(ch *amqp.Channel, _ bool) error {
		_, err := ch.Consume(e.p.Queue, "", false, false, false, false, amqp.Table{"x-priority": noPriority})
		return err
	})
}

// mayConfigure asks for the objects that are this service's own. Where others declare one too, being there is enough,
// and whether it is there is for Ensure to say.
func (e *ensurer) mayConfigure(ctx context.Context) error {
	if e.mode != ModeDeclare {
		return nil
	}
	for _, x := range e.p.Exchanges {
		if x.Type == "" || x.Shared {
			continue
		}
		err := e.may(ctx, "declaring "+exchangeObject(x.Name), x.Name, "configure", func(ch *amqp.Channel, _ bool) error {
			return ch.ExchangeDeclare(x.Name, x.Type, true, false, false, false, amqp.Table{"alternate-exchange": noTTL})
		})
		if err != nil {
			return err
		}
	}
	for i := range e.p.Queues {
		q := &e.p.Queues[i]
		if q.Shared {
			continue
		}
		args := amqp.Table{argTTL: noTTL}
		if exchange, _, ok := q.deadLetter(); ok {
			args[argDLX] = exchange
		}
		err := e.may(ctx, "declaring "+queueObject(q.Name), q.Name, queueOf(q).needs, activeQueue(q.Name, args))
		if err != nil {
			return err
		}
	}
	return nil
}

// mayBind takes a binding away that nobody has, which takes the same rights as making one.
func (e *ensurer) mayBind(ctx context.Context) error {
	if e.mode != ModeDeclare {
		return nil
	}
	asked := map[Route]bool{}
	for _, b := range e.p.Bindings {
		pair := Route{Exchange: b.Exchange, Queue: b.Queue}
		if asked[pair] || e.p.spareBinding(b) {
			continue
		}
		asked[pair] = true
		err := e.may(ctx, bindingObject(b), b.Queue, "write", func(ch *amqp.Channel, _ bool) error {
			return ch.QueueUnbind(b.Queue, probeKey, b.Exchange, nil)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mayPublish tries each exchange once. The channel is asked to close by what is published, which takes as long as a
// blocked connection is blocked: only ctx ends the wait.
func (e *ensurer) mayPublish(ctx context.Context) error {
	var asked []string
	for _, r := range e.p.publishRoutes() {
		if slices.Contains(asked, r.Exchange) {
			continue
		}
		asked = append(asked, r.Exchange)
		ch, err := e.s.Channel(ctx)
		if err != nil {
			return fmt.Errorf("publish to exchange %q: open channel: %w", r.Exchange, err)
		}
		closed := ch.NotifyClose(make(chan *amqp.Error, 1))
		err = e.s.Do(ctx, "publish", func() error {
			return ch.PublishWithContext(ctx, r.Exchange, r.Key, true, false, amqp.Publishing{Expiration: noExpiration})
		})
		if err != nil {
			return fmt.Errorf("publish to exchange %q: %w", r.Exchange, err)
		}
		select {
		case refusal := <-closed:
			if refusal == nil || !refusal.Server || !answersOnly(refusal.Code) {
				return fmt.Errorf("publish to exchange %q: the connection ended before the broker answered", r.Exchange)
			}
			if refusal.Code == amqp.AccessRefused {
				name := cmp.Or(r.Exchange, defaultExchange)
				e.report(e.p.permissionFinding("publishing to "+exchangeObject(name), name, "write", e.mode, refusal))
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// may asks something that the broker refuses in any case, and reports it when the user is the reason.
func (e *ensurer) may(ctx context.Context, title, name, needs string, q question) error {
	refusal, err := e.ask(ctx, title, q)
	if err != nil || refusal == nil || refusal.Code != amqp.AccessRefused {
		return err
	}
	if d := denied(refusal); needs == "write" && d.resource != "" && d.resource != name {
		name, needs = d.resource, "read" // of the exchange in a binding
	}
	e.report(e.p.permissionFinding(title, name, needs, e.mode, refusal))
	return nil
}
