package main

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/depth"
	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
)

// drain takes everything out of a queue and writes it down. A message is acked after its line was written.
func (r *rig) drain(queue string, to *ledger.Writer) error {
	r.moving.Lock()
	defer r.moving.Unlock()
	return r.node.with(func(ch *amqp.Channel) error {
		for {
			d, ok, err := ch.Get(queue, false)
			if err != nil || !ok {
				return err
			}
			if err := to.Write(record(&d)); err != nil {
				return err
			}
			if err := d.Ack(false); err != nil {
				return err
			}
		}
	})
}

func record(d *amqp.Delivery) *ledger.Parked {
	p := &ledger.Parked{
		Seq: plan.SeqOf(d.MessageId), ID: d.MessageId, Sum: plan.Sum(d.Body), At: ledger.Now(), Headers: map[string]string{},
		Types: map[string]string{}, Persistent: d.DeliveryMode == amqp.Persistent, Expiration: d.Expiration,
	}
	p.Changed = d.ContentType != plan.ContentType || d.Type != plan.Type || d.CorrelationId != d.MessageId
	for k, v := range d.Headers {
		switch v := v.(type) {
		case string:
			p.Headers[k] = v
		default:
			p.Headers[k] = fmt.Sprint(v)
		}
		p.Types[k] = fmt.Sprintf("%T", v)
	}
	return p
}

// redrive moves what is in the dead-letter queue back by hand, as operators do: as it is, with its headers. It takes
// each message unacked, publishes it mandatory and confirmed, then acks it.
func (r *rig) redrive(ctx context.Context) error {
	r.moving.Lock()
	defer r.moving.Unlock()
	return r.node.with(func(ch *amqp.Channel) error {
		state, err := depth.Of(ch, deadQueue)
		if err != nil {
			return err
		}
		if err := ch.Confirm(false); err != nil {
			return err
		}
		returns := ch.NotifyReturn(make(chan amqp.Return, 1))
		for range min(state.Messages, 200) {
			d, ok, err := ch.Get(deadQueue, false)
			if err != nil || !ok {
				return err
			}
			if err := r.moveBack(ctx, ch, returns, &d); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *rig) moveBack(ctx context.Context, ch *amqp.Channel, returns <-chan amqp.Return, d *amqp.Delivery) error {
	moved := ledger.Redriven{Seq: plan.SeqOf(d.MessageId), ID: d.MessageId, Result: ledger.Unknown}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", mainQueue, true, false, amqp.Publishing{
		Headers: d.Headers, ContentType: d.ContentType, Type: d.Type, CorrelationId: d.CorrelationId,
		DeliveryMode: d.DeliveryMode, MessageId: d.MessageId, Body: d.Body,
	})
	if err == nil {
		var acked bool
		if acked, err = confirm.WaitContext(ctx); err == nil && acked {
			moved.Result = ledger.Confirmed
			select {
			case <-returns:
				moved.Result = ledger.Returned
			default:
			}
		}
	}
	moved.At = ledger.Now()
	if werr := r.redriven.Write(moved); werr != nil {
		return werr
	}
	if err != nil {
		return err
	}
	if moved.Result != ledger.Confirmed {
		return d.Nack(false, true)
	}
	return d.Ack(false)
}
