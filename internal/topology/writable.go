package topology

import (
	"context"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"
)

// probeKey is a routing key that reaches no queue: the default exchange routes by queue name.
const probeKey = "sidecar.permission-probe.no-queue-has-this-name"

// CheckWritable looks whether the session's user may publish what the plan publishes, by publishing messages that can
// only come back: nothing is left in the broker. It must not run on a connection that consumes, see Ensure. Exchanges
// that are shared, or route by more than the exact key, are not tried: somebody might get the message.
func CheckWritable(ctx context.Context, s Session, p *Plan, mode Mode) ([]Finding, error) {
	e := prober{s: s}
	defer e.close(ctx)
	var findings []Finding
	targets := p.publishTargets()
	slices.Sort(targets)
	for _, name := range slices.Compact(targets) {
		target := name
		if name == defaultExchange {
			target = ""
		} else if x := p.exchange(name); x == nil || x.Shared || x.Type != "direct" {
			continue
		}
		title := "publishing to " + exchangeObject(name)
		refusal, err := e.ask(ctx, title, func(ch *amqp.Channel, _ bool) error { return publishAndReturn(ctx, ch, target) })
		if err != nil {
			return nil, err
		}
		if refusal != nil && refusal.Code == amqp.AccessRefused { // one that is missing is for Ensure to say
			findings = append(findings, p.permissionFinding(title, name, "write", mode, refusal))
		}
	}
	return findings, nil
}

// publishAndReturn publishes the probe and waits until the broker has dealt with it.
func publishAndReturn(ctx context.Context, ch *amqp.Channel, exchange string) error {
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	if err := ch.Confirm(false); err != nil {
		return err
	}
	confirm, err := ch.PublishWithDeferredConfirm(exchange, probeKey, true, false, amqp.Publishing{})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-confirm.Done(): // closing a channel resolves its confirms too
	}
	if confirm.Acked() {
		return nil
	}
	select {
	case err := <-closed:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return amqp.ErrClosed
}
