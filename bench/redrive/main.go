// Command redrive is compared with `sidecar dlq redrive --all`. It is the loop that a good engineer writes by hand with
// amqp091-go to move what is in one queue now into another: two connections, a prefetch of 1,000, mandatory publishes
// in confirm mode that do not wait for each other, and acks of prefixes (multiple) after the confirms. One goroutine
// publishes what arrives, another one waits for the confirms in the same order and acks every hundred, or when no other
// message is under way. A message that was returned or not confirmed ends it, and stays in the first queue.
//
// It keeps the order when nothing goes wrong. It marks no message, chooses none, does not restore the order of what it
// had taken when it ends early, and does not keep other consumers away. It must stay honest: if you can make it faster
// within its rules, do.
package main

import (
	"errors"
	"fmt"
	"os"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	prefetch  = 1000
	ackPrefix = 100
)

func main() {
	if err := run(os.Getenv("AMQP_URL"), os.Getenv("FROM"), os.Getenv("TO")); err != nil {
		fmt.Fprintln(os.Stderr, "redrive:", err)
		os.Exit(1)
	}
}

// moved is a message that was published.
type moved struct {
	tag     uint64
	confirm *amqp.DeferredConfirmation
}

func run(url, from, to string) error {
	in, err := open(url)
	if err != nil {
		return err
	}
	out, err := open(url)
	if err != nil {
		return err
	}
	state, err := in.QueueDeclarePassive(from, true, false, false, false, nil)
	if err != nil {
		return err
	}
	if err := in.Qos(prefetch, 0, false); err != nil {
		return err
	}
	deliveries, err := in.Consume(from, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	if err := out.Confirm(false); err != nil {
		return err
	}
	returns := out.NotifyReturn(make(chan amqp.Return, prefetch))
	pending := make(chan moved, prefetch)
	finished := make(chan error, 1)
	go func() {
		err := finish(in, pending, returns)
		if err != nil {
			_ = in.close() // which ends the deliveries
		}
		for range pending { //nolint:revive // what was published since stays in the first queue, too
		}
		finished <- err
	}()
	err = publish(out, to, deliveries, state.Messages, pending)
	close(pending)
	if err := errors.Join(err, <-finished); err != nil {
		return err
	}
	return errors.Join(in.close(), out.close())
}

// channel is a channel on a connection of its own.
type channel struct {
	*amqp.Channel
	conn *amqp.Connection
}

func open(url string) (*channel, error) {
	conn, err := amqp.Dial(url)
	if err != nil {
		return nil, err
	}
	ch, err := conn.Channel()
	return &channel{ch, conn}, err
}

// close ends the connection. The broker's answer comes after everything that was sent before.
func (c *channel) close() error { return c.conn.Close() }

// publish sends n messages to the queue.
func publish(out *channel, to string, deliveries <-chan amqp.Delivery, n int, pending chan<- moved) error {
	for range n {
		d, ok := <-deliveries
		if !ok {
			return errors.New("the consumer has ended")
		}
		confirm, err := out.PublishWithDeferredConfirm("", to, true, false, amqp.Publishing{
			Headers: d.Headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding,
			DeliveryMode: amqp.Persistent, Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo,
			MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId, Body: d.Body,
		})
		if err != nil {
			return err
		}
		pending <- moved{d.DeliveryTag, confirm}
	}
	return nil
}

// finish waits for the confirms, and acks. The broker returns a message before it confirms it.
func finish(in *channel, pending <-chan moved, returns <-chan amqp.Return) error {
	n := 0
	for m := range pending {
		if !m.confirm.Wait() {
			return errors.New("a message was not confirmed")
		}
		if n++; n%ackPrefix != 0 && len(pending) > 0 {
			continue
		}
		select {
		case back := <-returns:
			return fmt.Errorf("message %q was returned: %s", back.MessageId, back.ReplyText)
		default:
		}
		if err := in.Ack(m.tag, true); err != nil {
			return err
		}
	}
	return nil
}
