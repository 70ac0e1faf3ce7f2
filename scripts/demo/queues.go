package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// queues is the publisher's and the operator's side of the broker.
type queues struct {
	conn *amqp.Connection
	ch   *amqp.Channel
}

func openQueues(url string) (*queues, error) {
	conn, err := amqp.Dial(url)
	if err != nil {
		return nil, fmt.Errorf("dial the broker: %w", err)
	}
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &queues{conn: conn, ch: ch}, nil
}

// publish returns once the broker has confirmed that the message is its responsibility.
func (q *queues) publish(ctx context.Context, o *order) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	confirm, err := q.ch.PublishWithDeferredConfirmWithContext(ctx, exchange, "", true, false, amqp.Publishing{
		MessageId:    o.id,
		ContentType:  "application/json",
		DeliveryMode: amqp.Persistent,
		Body:         []byte(o.body),
	})
	if err != nil {
		return fmt.Errorf("publish %s: %w", o.id, err)
	}
	if ok, err := confirm.WaitContext(ctx); err != nil || !ok {
		return fmt.Errorf("publish %s: confirmed %v: %w", o.id, ok, err)
	}
	return nil
}

// parked returns what lies in the DLQ and leaves it there.
func (q *queues) parked() ([]amqp.Delivery, error) {
	var all []amqp.Delivery
	for {
		d, ok, err := q.ch.Get(dlq, false)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", dlq, err)
		}
		if !ok {
			break
		}
		all = append(all, d)
	}
	for _, d := range all {
		if err := d.Nack(false, true); err != nil {
			return nil, fmt.Errorf("put back into %s: %w", dlq, err)
		}
	}
	return all, nil
}

// leftover lists the queues that are not empty although every message has arrived where it belongs. An ack takes a
// moment to reach the broker, so it checks more than once.
func (q *queues) leftover(ctx context.Context) ([]string, error) {
	deadline := time.Now().Add(5 * time.Second)
	for {
		var left []string
		for _, name := range []string{mainQueue, retryQueue, dlq} {
			state, err := q.ch.QueueDeclarePassive(name, true, false, false, false, nil)
			if err != nil {
				return nil, fmt.Errorf("read the depth of %s: %w", name, err)
			}
			if state.Messages > 0 {
				left = append(left, fmt.Sprintf("%s still holds %d", name, state.Messages))
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return left, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// brokenParking lists how what was parked differs from what was promised.
func brokenParking(parked []amqp.Delivery, o *order) []string {
	if len(parked) != 1 || parked[0].MessageId != o.id {
		return []string{fmt.Sprintf("%s holds %d messages, promised was %q alone", dlq, len(parked), o.id)}
	}
	var wrong []string
	for name, want := range map[string]string{
		"x-final-reason":      "max_retries",
		"x-final-status-code": "500",
		"x-final-retry-count": fmt.Sprint(maxRetries),
		"x-original-queue":    mainQueue,
	} {
		if got := fmt.Sprint(parked[0].Headers[name]); got != want {
			wrong = append(wrong, fmt.Sprintf("parked with %s: %s, promised was %s", name, got, want))
		}
	}
	if string(parked[0].Body) != o.body {
		wrong = append(wrong, "the parked body is not the published one")
	}
	slices.Sort(wrong)
	return wrong
}

func (q *queues) close() error { return q.conn.Close() }
