package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// broker is a topology of its own.
type broker struct {
	url, kind, service string
	conn               *amqp.Connection
}

func newBroker(url, kind string) (*broker, error) {
	conn, err := amqp.Dial(url)
	if err != nil {
		return nil, fmt.Errorf("connect to the broker: %w", err)
	}
	b := &broker{url: url, kind: kind, service: fmt.Sprintf("bench%d-dlq", time.Now().UnixNano()), conn: conn}
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	args := amqp.Table{}
	if kind == "quorum" {
		args = amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(1<<31 - 1)}
	}
	for _, q := range []string{b.queue(), b.dlq()} {
		if _, err := ch.QueueDeclare(q, true, false, false, false, args); err != nil {
			return nil, fmt.Errorf("declare queue %q: %w", q, err)
		}
	}
	return b, ch.Close()
}

func (b *broker) prefix() string { return strings.TrimSuffix(b.service, "-dlq") }
func (b *broker) queue() string  { return b.prefix() + ".queue." + b.service }
func (b *broker) dlq() string    { return b.prefix() + ".dlq." + b.service }

func (b *broker) close() {
	if ch, err := b.conn.Channel(); err == nil {
		_, _ = ch.QueueDelete(b.queue(), false, false, false)
		_, _ = ch.QueueDelete(b.dlq(), false, false, false)
	}
	_ = b.conn.Close()
}

// fill parks n messages and empties the service's queue.
func (b *broker) fill(n, body int) error {
	ch, err := b.conn.Channel()
	if err != nil {
		return err
	}
	defer ch.Close() //nolint:errcheck // nothing is left to do about it
	if _, err := ch.QueuePurge(b.queue(), false); err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	confirms := make(chan *amqp.DeferredConfirmation, 2000)
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for c := range confirms {
			if !c.Wait() {
				failed <- errors.New("a message was not confirmed")
			}
		}
	}()
	payload := make([]byte, body)
	for i := range n {
		c, err := ch.PublishWithDeferredConfirm("", b.dlq(), true, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, MessageId: id(i), Body: payload,
			Headers: amqp.Table{
				"x-original-queue": b.queue(), "x-original-exchange": "orders", "x-original-routing-key": "order.created",
				//nolint:gosec // small
				"x-final-reason": "max_retries", "x-final-status-code": int32(500 + i%7), "x-final-retry-count": int32(10),
				"x-final-at": "2026-11-20T10:00:00.000Z", "x-final-detail": fmt.Sprintf("order %d could not be booked", i),
			},
		})
		if err != nil {
			return err
		}
		confirms <- c
	}
	close(confirms)
	return <-failed
}

// allMoved waits until the dead-letter queue is empty and the service's queue has n messages.
func (b *broker) allMoved(n int) error {
	ch, err := b.conn.Channel()
	if err != nil {
		return err
	}
	defer ch.Close() //nolint:errcheck // nothing is left to do about it
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		var ready [2]int
		for i, name := range []string{b.dlq(), b.queue()} {
			q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			if err != nil {
				return err
			}
			ready[i] = q.Messages
		}
		if ready[0] == 0 && ready[1] == n {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d messages are in the dead-letter queue, and %d of %d in the other", ready[0], ready[1], n)
		}
	}
}

// moved takes all messages of the service's queue, and makes sure that the figures are of what they say: each message
// was moved, and has its place. A redrive that moved nothing would be very fast.
func (b *broker) moved(n int) error {
	if err := b.allMoved(n); err != nil {
		return err
	}
	ch, err := b.conn.Channel()
	if err != nil {
		return err
	}
	defer ch.Close() //nolint:errcheck // nothing is left to do about it
	deliveries, err := ch.Consume(b.queue(), "", true, false, false, false, nil)
	if err != nil {
		return err
	}
	for i := range n {
		if d, ok := <-deliveries; !ok || d.MessageId != id(i) {
			return fmt.Errorf("message %d is %q", i, d.MessageId)
		}
	}
	return nil
}

func id(i int) string { return fmt.Sprintf("message-%08d", i) }
