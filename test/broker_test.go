package test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/depth"
	"sidecar/internal/testkit/must"
)

// broker is a test's own connection to RabbitMQ, dialled again after it was lost. Every call uses a channel of its own:
// a refused declare closes the channel it was made on.
type broker struct {
	t    testing.TB
	url  string
	mu   sync.Mutex
	conn *amqp.Connection
	poll *amqp.Channel // for look
}

func dialBroker(t testing.TB) *broker {
	t.Helper()
	b := &broker{t: t, url: brokertest.URL(t)}
	t.Cleanup(func() { b.close() })
	_ = b.channel().Close()
	return b
}

func (b *broker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		_ = b.conn.CloseDeadline(time.Now().Add(5 * time.Second))
	}
}

func (b *broker) open() (*amqp.Channel, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == nil || b.conn.IsClosed() {
		conn, err := amqp.DialConfig(b.url, amqp.Config{Dial: amqp.DefaultDial(15 * time.Second), Heartbeat: 60 * time.Second})
		if err != nil {
			return nil, err
		}
		b.conn = conn
	}
	return b.conn.Channel()
}

func (b *broker) channel() (ch *amqp.Channel) {
	b.t.Helper()
	eventually(b.t, "a channel to the broker", func() (ok bool) {
		var err error
		ch, err = b.open()
		return err == nil
	})
	return ch
}

// publish is confirmed and mandatory: a message no queue takes fails the test instead of being waited for.
func (b *broker) publish(exchange, key string, messages ...amqp.Publishing) {
	b.t.Helper()
	ch := b.channel()
	defer func() { _ = ch.Close() }()
	returned := ch.NotifyReturn(make(chan amqp.Return, len(messages)))
	must.Do(b.t, ch.Confirm(false))
	confirms := make([]*amqp.DeferredConfirmation, len(messages))
	for i, m := range messages {
		c, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, m)
		if err != nil {
			b.t.Fatalf("publish to %q key %q: %v", exchange, key, err)
		}
		confirms[i] = c
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i, c := range confirms {
		if ok, err := c.WaitContext(ctx); err != nil || !ok {
			b.t.Fatalf("publish %q to %q key %q: confirmed %v, %v", messages[i].MessageId, exchange, key, ok, err)
		}
	}
	select {
	case r := <-returned:
		b.t.Fatalf("publish to %q key %q returned: %s", exchange, key, r.ReplyText)
	default:
	}
}

// ready counts the messages waiting in the queue (unacked ones are not among them), -1 when there is no such queue.
func (b *broker) ready(queue string) int { n, _ := b.look(queue); return n }

// consumers counts the queue's consumers, -1 when there is no such queue.
func (b *broker) consumers(queue string) int { _, n := b.look(queue); return n }

func (b *broker) look(queue string) (ready, consumers int) {
	if b.poll == nil || b.poll.IsClosed() {
		ch, err := b.open()
		if err != nil {
			return -1, -1
		}
		b.poll = ch
	}
	q, err := depth.Of(b.poll, queue)
	if err != nil {
		return -1, -1
	}
	return q.Messages, q.Consumers
}

// take removes the next n messages of a queue, waiting for them and for the queue.
func (b *broker) take(queue string, n int) []amqp.Delivery {
	b.t.Helper()
	var got []amqp.Delivery
	if n == 0 {
		return nil
	}
	eventually(b.t, fmt.Sprintf("%d messages in %s", n, queue), func() bool {
		if b.ready(queue) < 1 {
			return false
		}
		ch := b.channel()
		defer func() { _ = ch.Close() }()
		for len(got) < n {
			d, ok, err := ch.Get(queue, true)
			if err != nil || !ok {
				return false
			}
			got = append(got, d)
		}
		return true
	})
	return got
}

// on calls f with a channel of its own.
func (b *broker) on(f func(*amqp.Channel) error) error {
	b.t.Helper()
	ch := b.channel()
	defer func() { _ = ch.Close() }()
	return f(ch)
}

func (b *broker) deleteQueue(name string) {
	b.t.Helper()
	must.Do(b.t, b.on(func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete(name, false, false, false)
		return err
	}))
}

func (b *broker) deleteExchange(name string) {
	b.t.Helper()
	must.Do(b.t, b.on(func(ch *amqp.Channel) error { return ch.ExchangeDelete(name, false, false) }))
}

// declare declares the queue with those arguments and returns the broker's refusal: nil also proves that a queue of
// the name has exactly the arguments that matter, because a broker refuses to redeclare with others.
func (b *broker) declare(queue string, args amqp.Table) error {
	b.t.Helper()
	return b.on(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(queue, true, false, false, false, args)
		return err
	})
}

func (b *broker) declareExchange(name, kind string) error {
	b.t.Helper()
	return b.on(func(ch *amqp.Channel) error { return ch.ExchangeDeclare(name, kind, true, false, false, false, nil) })
}

func (b *broker) bind(queue, key, exchange string) {
	b.t.Helper()
	must.Do(b.t, b.on(func(ch *amqp.Channel) error { return ch.QueueBind(queue, key, exchange, false, nil) }))
}

func (b *broker) unbind(queue, key, exchange string) {
	b.t.Helper()
	must.Do(b.t, b.on(func(ch *amqp.Channel) error { return ch.QueueUnbind(queue, key, exchange, nil) }))
}

// brokerURLWith is the URL of the test's virtual host with its parts edited.
func brokerURLWith(t testing.TB, edit func(*url.URL)) string {
	t.Helper()
	u := must.Get(url.Parse(brokertest.URL(t)))(t)
	edit(u)
	return u.String()
}

func brokerUser(t testing.TB) (name string) {
	t.Helper()
	brokerURLWith(t, func(u *url.URL) { name = u.User.Username() })
	return name
}
