package consume

import (
	"context"
	"encoding/json"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

const (
	// replies published at once: they must not hold up the messages that have to be published
	maxReplying = 16
	// those and all that wait; more are dropped: the header that asks for a reply can be forged
	maxReplies = message.MaxCanary
)

// replies are the slots for those that are being published, and for those and all that wait.
type replies struct{ running, all chan struct{} }

// replyVerdict publishes the verdict on a redriven message to the canary that waits for it. Nothing depends on it: it
// happens beside the settlement, and the broker drops a reply whose canary has ended. A message that only goes back to
// its queue has no verdict yet.
func (c *Consumer) replyVerdict(a *attempt, v *message.Verdict) {
	if v.Action == message.Requeue || v.Action == message.Release {
		return
	}
	select {
	case c.replies.all <- struct{}{}:
	default:
		return
	}
	id := a.m.MessageID // the worker may reuse the attempt before this is over
	body, _ := json.Marshal(message.VerdictReply{
		MessageID: strings.ToValidUTF8(id, "\uFFFD"), Outcome: v.Action.String(), Reason: v.Reason.String(),
		Status: v.Cause.Status,
	})
	pub := &message.Publication{Kind: message.KindOther, Key: a.canary.to, Msg: amqp.Publishing{
		ContentType: "application/json", CorrelationId: a.canary.token, Body: body,
	}}
	c.background.Go(func() {
		defer func() { <-c.replies.all }()
		ctx, cancel := context.WithTimeout(c.stop.interrupt, publishTimeout)
		defer cancel()
		var err error
		select {
		case c.replies.running <- struct{}{}:
			err = c.o.Publisher.Publish(ctx, pub)
			<-c.replies.running
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			c.o.Logger.Debug("canary reply failed", "message_id", id, "error", err)
		}
	})
}
