package topology

import (
	"context"
	"errors"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"
)

// probeKey is a routing key that reaches no queue: the default exchange routes by queue name.
const probeKey = "sidecar.permission-probe.no-queue-has-this-name"

// CheckWritable looks whether the session's user may publish to the default exchange, through which messages are
// parked, by publishing a message that can only come back. Nothing is left in the broker. It must not run on a
// connection that consumes, see Ensure. Other exchanges are not tried: an alternate exchange could keep the message.
func CheckWritable(ctx context.Context, s Session, p *Plan, mode Mode) ([]Finding, error) {
	if !slices.Contains(p.publishTargets(), defaultExchange) {
		return nil, nil
	}
	e := prober{s: s}
	defer e.close(ctx)
	refusal, err := e.ask(ctx, "publish to the default exchange", func(ch *amqp.Channel) error {
		return publishAndReturn(ctx, ch)
	})
	if err != nil || refusal == nil {
		return nil, err
	}
	title := "publishing to the default exchange"
	return []Finding{p.permissionFinding(title, defaultExchange, "write", mode, refusal)}, nil
}

// errKept cannot happen as long as no queue is called probeKey.
var errKept = errors.New("the probe was not returned")

func publishAndReturn(ctx context.Context, ch *amqp.Channel) error {
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	returned := ch.NotifyReturn(make(chan amqp.Return, 1))
	if err := ch.Confirm(false); err != nil {
		return err
	}
	confirm, err := ch.PublishWithDeferredConfirm("", probeKey, true, false, amqp.Publishing{})
	if err != nil {
		return err
	}
	select {
	case err := <-closed:
		if err == nil { // closed by ourselves
			return amqp.ErrClosed
		}
		return err
	case <-returned: // comes before the confirm
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-confirm.Done():
	}
	select {
	case err := <-closed: // closing a channel resolves its confirms too
		if err != nil {
			return err
		}
		return amqp.ErrClosed
	case <-returned:
		return nil
	default:
		return errKept
	}
}
