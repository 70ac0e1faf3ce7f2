package brokertest

import (
	"context"
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Conn returns a plain client connection to url, closed when the test ends.
func Conn(t testing.TB, url string) *amqp.Connection {
	t.Helper()
	c, err := amqp.DialConfig(url, amqp.Config{Properties: amqp.Table{"connection_name": "test " + t.Name()}})
	if err != nil {
		t.Fatalf("connect to the broker: %v", err)
	}
	t.Cleanup(func() { _ = c.CloseDeadline(time.Now().Add(5 * time.Second)) })
	return c
}

// Channel returns a channel in confirm mode on a connection of its own.
func Channel(t testing.TB, url string) *amqp.Channel {
	t.Helper()
	ch, err := Conn(t, url).Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		t.Fatalf("open a channel: %v", err)
	}
	return ch
}

// Queue declares a durable queue that is deleted when the test ends, and returns its name.
func Queue(t testing.TB, url, name string, args amqp.Table) string {
	t.Helper()
	if _, err := Channel(t, url).QueueDeclare(name, true, false, false, false, args); err != nil {
		t.Fatalf("declare queue %q: %v", name, err)
	}
	t.Cleanup(func() { _, _ = Channel(t, url).QueueDelete(name, false, false, false) })
	return name
}

// Publish sends msg, mandatory and persistent, and waits for the confirm. A message that ends in no queue fails the test.
func Publish(t testing.TB, ch *amqp.Channel, exchange, key string, msg amqp.Publishing) {
	t.Helper()
	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	msg.DeliveryMode = amqp.Persistent
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	confirm, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, msg)
	if err != nil {
		t.Fatalf("publish to %q with key %q: %v", exchange, key, err)
	}
	if ok, err := confirm.WaitContext(ctx); err != nil || !ok {
		t.Fatalf("publish to %q with key %q: not confirmed: %v", exchange, key, err)
	}
	select {
	case r := <-returns:
		t.Fatalf("publish to %q with key %q: returned: %s", exchange, key, r.ReplyText)
	default:
	}
}

// Send publishes bodies to the queue on a channel of its own.
func Send(t testing.TB, url, queue string, bodies ...string) {
	t.Helper()
	ch := Channel(t, url)
	for _, b := range bodies {
		Publish(t, ch, "", queue, amqp.Publishing{Body: []byte(b)})
	}
}

// Get takes one message from queue and acks it; it waits up to limit for one to be there.
func Get(t testing.TB, url, queue string, limit time.Duration) amqp.Delivery {
	t.Helper()
	ch := Channel(t, url)
	var d amqp.Delivery
	Eventually(t, limit, "a message in "+queue, func() bool {
		var ok bool
		var err error
		if d, ok, err = ch.Get(queue, true); err != nil {
			t.Fatalf("get from %q: %v", queue, err)
		}
		return ok
	})
	return d
}

// Ready counts the messages in queue that wait for a consumer; -1 when there is no such queue.
func Ready(t testing.TB, url, queue string) int {
	t.Helper()
	q, ok := inspect(t, url, queue)
	if !ok {
		return -1
	}
	return q.Messages
}

// Consumers counts the consumers of queue; -1 when there is no such queue.
func Consumers(t testing.TB, url, queue string) int {
	t.Helper()
	q, ok := inspect(t, url, queue)
	if !ok {
		return -1
	}
	return q.Consumers
}

// WaitReady waits until queue holds exactly n ready messages.
func WaitReady(t testing.TB, url, queue string, n int) {
	t.Helper()
	Eventually(t, 30*time.Second, "the wanted number of ready messages in "+queue, func() bool {
		return Ready(t, url, queue) == n
	})
}

func inspect(t testing.TB, url, queue string) (amqp.Queue, bool) {
	t.Helper()
	c, err := amqp.Dial(url)
	if err != nil {
		t.Fatalf("connect to the broker: %v", err)
	}
	defer func() { _ = c.CloseDeadline(time.Now().Add(5 * time.Second)) }()
	ch, err := c.Channel()
	if err != nil {
		t.Fatalf("open a channel: %v", err)
	}
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	var closed *amqp.Error
	if errors.As(err, &closed) && closed.Code == amqp.NotFound {
		return q, false
	}
	if err != nil {
		t.Fatalf("inspect queue %q: %v", queue, err)
	}
	return q, true
}
