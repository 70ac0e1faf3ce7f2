package consume

import (
	"context"
	"encoding/json"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/message"
)

const (
	// maxTelling bounds the verdicts that are being told at once: they must not crowd out what has to be published.
	maxTelling = 16
	// maxUntold bounds those and all that wait for their turn: as many as one canary may send ahead. More are not told:
	// whoever forges the question a thousand times gets no answer.
	maxUntold = 1000
)

// verdict is what is told of a message: JSON, without anything of the message but its id.
type verdict struct {
	MessageID string `json:"message_id,omitempty"`
	Outcome   string `json:"outcome"`
	Reason    string `json:"reason"`
	Status    int    `json:"status,omitempty"` // of the app's answer, if there was one
}

// tell publishes the verdict on a redriven message to whoever asked for it. Nothing depends on it: it happens beside the
// settlement, and when nobody listens any more the broker returns it. A message that only goes back to its queue has no
// verdict yet.
func (c *Consumer) tell(r *record) {
	v := &r.s.Verdict
	switch v.Action {
	case message.Ack, message.Retry, message.Park, message.Discard:
	default:
		return
	}
	select {
	case c.untold <- struct{}{}:
	default:
		return
	}
	id := r.m.MessageID // the record may be somebody else's before this is over
	body, err := json.Marshal(verdict{
		MessageID: strings.ToValidUTF8(id, "\uFFFD"), Outcome: v.Action.String(), Reason: v.Reason.String(), Status: v.Cause.Status,
	})
	pub := &broker.Publication{Kind: broker.KindOther, Key: r.reply, Msg: amqp.Publishing{
		ContentType: "application/json", CorrelationId: r.token, Body: body,
	}}
	c.background.Go(func() {
		defer func() { <-c.untold }()
		ctx, cancel := context.WithTimeout(c.interrupt, publishTimeout)
		defer cancel()
		select {
		case c.telling <- struct{}{}:
			defer func() { <-c.telling }()
			if err == nil {
				err = c.o.Publisher.Publish(ctx, pub)
			}
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			c.o.Logger.Debug("verdict not told", "queue", c.o.Plan.Queue, "message_id", id, "error", err)
		}
	})
}
