package declare

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// The broker checks permissions before anything else. So a request that it would refuse anyway shows whether a user has
// the right, and leaves nothing behind: a declaration that makes nothing (see argGuard), a message with an
// expiration that is not a number, a consumer with a priority that is not a number, the removal of a binding that does
// not exist.
const (
	noExpiration = "never"
	noPriority   = "none"
	probeKey     = "sidecar.permission-probe.no-binding-has-this-key"
)

// Preflight proves that the session's user may do everything that running the plan in a mode needs, without doing it:
// Ensure only checks rights to read. It publishes (messages that the broker refuses), so it must not run on a
// connection that consumes. Missing objects are findings of Ensure. An error is a failure of the session.
func Preflight(ctx context.Context, s Session, p *topology.Plan, mode topology.Mode) ([]Finding, error) {
	e := newEnsurer(s, p, mode)
	defer e.close(context.WithoutCancel(ctx))
	e.mayConsume(ctx)
	if mode == topology.ModeDeclare {
		e.mayConfigure(ctx)
		e.mayBind(ctx)
	}
	if e.err != nil {
		return nil, e.err
	}
	publishing, err := NewPublishPreflight(ctx, s, p, mode)
	if err != nil {
		return nil, err
	}
	findings, err := publishing.Run(ctx)
	return mergePermissions(append(e.findings, findings...)), err
}

// PublishPreflight is the part of Preflight about publishing retries, parked and redriven messages.
type PublishPreflight struct {
	e      *ensurer
	probes []probe
}

// probe is one exchange to try, on a channel of its own.
type probe struct {
	route  topology.Route
	ch     *amqp.Channel
	closed chan *amqp.Error
}

// NewPublishPreflight opens the channels of a check. During a resource alarm the broker reads no further from a
// connection that has published, so this has to come first: an open that is never answered would cost the session.
func NewPublishPreflight(ctx context.Context, s Session, p *topology.Plan, mode topology.Mode) (*PublishPreflight,
	error) {
	c := &PublishPreflight{e: newEnsurer(s, p, mode)}
	for _, r := range p.PublishRoutes() {
		if slices.ContainsFunc(c.probes, func(asked probe) bool { return asked.route.Exchange == r.Exchange }) {
			continue
		}
		ch, err := s.Channel(ctx)
		if err != nil {
			return nil, fmt.Errorf("publish to exchange %q: %w", r.Exchange, err)
		}
		c.probes = append(c.probes, probe{r, ch, ch.NotifyClose(make(chan *amqp.Error, 1))})
	}
	return c, nil
}

// Run tries each exchange once, with a message the broker refuses in any case. It waits until an alarm is over: only
// the end of ctx or of the session ends the wait. A check runs once.
func (c *PublishPreflight) Run(ctx context.Context) ([]Finding, error) {
	for _, a := range c.probes {
		err := c.e.s.Do(ctx, "publish", func() error {
			return a.ch.PublishWithContext(ctx, a.route.Exchange, a.route.Key, true, false,
				amqp.Publishing{Expiration: noExpiration})
		})
		if err != nil {
			return nil, fmt.Errorf("publish to exchange %q: %w", a.route.Exchange, err)
		}
	}
	for _, a := range c.probes {
		var refusal *amqp.Error
		select {
		case refusal = <-a.closed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if refusal == nil || !answers(refusal) {
			return nil, fmt.Errorf("publish to exchange %q: the connection ended before the broker answered", a.route.Exchange)
		}
		if refusal.Code == amqp.AccessRefused { // anything else that the broker dislikes about a probe is intended
			name := cmp.Or(a.route.Exchange, topology.DefaultExchange)
			c.e.forbidden("publishing to "+topology.ExchangeTitle(name), name, "write", refusal)
		}
	}
	return c.e.findings, nil
}

func (e *ensurer) mayConsume(ctx context.Context) {
	for _, queue := range e.p.Consumed() {
		e.may(ctx, "consuming from "+topology.QueueTitle(queue), queue, "read", func(ch *amqp.Channel, _ bool) error {
			_, err := ch.Consume(queue, "", false, false, false, false, amqp.Table{"x-priority": noPriority})
			return err
		})
	}
}

// mayConfigure asks for the objects that are this service's own. Where others declare one too, being there is enough:
// Ensure reports one that the user may not read.
func (e *ensurer) mayConfigure(ctx context.Context) {
	for _, o := range objects(e.p) {
		if o.active == nil {
			continue
		}
		if o.spare {
			if absent := e.ask(ctx, lookFor+o.title, o.passive); absent == nil || absent.Code != amqp.NotFound {
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
