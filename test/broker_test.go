package test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// broker is one test's own connection to RabbitMQ. Every call uses a channel of its own: a refused declare closes the
// channel it was made on.
type broker struct {
	t    testing.TB
	conn *amqp.Connection
}

func dialBroker(t testing.TB) *broker {
	t.Helper()
	conn, err := amqp.DialConfig(brokerURL, amqp.Config{Dial: amqp.DefaultDial(15 * time.Second), Heartbeat: 60 * time.Second})
	if err != nil {
		t.Fatalf("connect to AMQP_URL: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &broker{t: t, conn: conn}
}

func (b *broker) channel() *amqp.Channel {
	b.t.Helper()
	ch, err := b.conn.Channel()
	if err != nil {
		b.t.Fatalf("open a channel: %v", err)
	}
	return ch
}

// publish is confirmed and mandatory: a message no queue takes fails the test instead of being waited for.
func (b *broker) publish(exchange, key string, messages ...amqp.Publishing) {
	b.t.Helper()
	ch := b.channel()
	defer func() { _ = ch.Close() }()
	returned := ch.NotifyReturn(make(chan amqp.Return, len(messages)))
	if err := ch.Confirm(false); err != nil {
		b.t.Fatal(err)
	}
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
		b.t.Fatalf("publish to %q key %q came back: %s", exchange, key, r.ReplyText)
	default:
	}
}

// ready counts the messages waiting in the queue (unacked ones are not among them), -1 when there is no such queue.
func (b *broker) ready(queue string) int { n, _ := b.look(queue); return n }

// consumers counts the queue's consumers, -1 when there is no such queue.
func (b *broker) consumers(queue string) int { _, n := b.look(queue); return n }

func (b *broker) look(queue string) (ready, consumers int) {
	ch, err := b.conn.Channel()
	if err != nil {
		return -1, -1
	}
	defer func() { _ = ch.Close() }()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
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

func (b *broker) deleteQueue(name string) {
	b.t.Helper()
	ch := b.channel()
	defer func() { _ = ch.Close() }()
	if _, err := ch.QueueDelete(name, false, false, false); err != nil {
		b.t.Fatalf("delete queue %q: %v", name, err)
	}
}

func (b *broker) deleteExchange(name string) {
	b.t.Helper()
	ch := b.channel()
	defer func() { _ = ch.Close() }()
	if err := ch.ExchangeDelete(name, false, false); err != nil {
		b.t.Fatalf("delete exchange %q: %v", name, err)
	}
}

// drop removes objects without caring whether they exist, and exchanges only when nothing else is bound to them.
func (b *broker) drop(queues, exchanges []string) {
	if b.conn.IsClosed() {
		b = dialBroker(b.t)
	}
	for _, q := range queues {
		if ch, err := b.conn.Channel(); err == nil {
			_, _ = ch.QueueDelete(q, false, false, false)
			_ = ch.Close()
		}
	}
	for _, e := range exchanges {
		if ch, err := b.conn.Channel(); err == nil {
			_ = ch.ExchangeDelete(e, true, false)
			_ = ch.Close()
		}
	}
}

// declare declares the queue with those arguments and returns the broker's refusal: nil also proves that a queue of
// the name has exactly the arguments that matter, because a broker refuses to redeclare with others.
func (b *broker) declare(queue string, args amqp.Table) error {
	b.t.Helper()
	ch := b.channel()
	defer func() { _ = ch.Close() }()
	_, err := ch.QueueDeclare(queue, true, false, false, false, args)
	return err
}

func (b *broker) declareExchange(name, kind string) error {
	b.t.Helper()
	ch := b.channel()
	defer func() { _ = ch.Close() }()
	return ch.ExchangeDeclare(name, kind, true, false, false, false, nil)
}

func (b *broker) bind(queue, key, exchange string) {
	b.t.Helper()
	ch := b.channel()
	defer func() { _ = ch.Close() }()
	if err := ch.QueueBind(queue, key, exchange, false, nil); err != nil {
		b.t.Fatalf("bind %q to %q: %v", queue, exchange, err)
	}
}

// brokerAddr is host:port of AMQP_URL.
func brokerAddr(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(brokerURL)
	if err != nil {
		t.Fatal("AMQP_URL is not a URL")
	}
	if u.Port() == "" {
		return u.Host + ":5672"
	}
	return u.Host
}

// brokerURLWith is AMQP_URL with its parts edited.
func brokerURLWith(t testing.TB, edit func(*url.URL)) string {
	t.Helper()
	u, err := url.Parse(brokerURL)
	if err != nil {
		t.Fatal("AMQP_URL is not a URL")
	}
	edit(u)
	return u.String()
}

func vhost(t testing.TB) string {
	u, err := amqp.ParseURI(brokerURL)
	if err != nil {
		t.Fatal("AMQP_URL is not an AMQP URL")
	}
	return u.Vhost
}

// ctl runs BROKER_CTL.
func ctl(t testing.TB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, brokerCtl, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("rabbitmqctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// brokerScript runs a command of scripts/broker.sh on the broker.
func brokerScript(t testing.TB, command string) {
	t.Helper()
	if out, err := exec.Command("../scripts/broker.sh", command, brokerDir).CombinedOutput(); err != nil {
		t.Fatalf("broker.sh %s: %v\n%s", command, err, out)
	}
}

// ctlRows runs a list command and decodes its JSON.
func ctlRows(t testing.TB, args ...string) []map[string]any {
	t.Helper()
	out := ctl(t, append([]string{"-q", "--formatter", "json"}, args...)...)
	var rows []map[string]any
	if i := strings.Index(out, "["); i >= 0 {
		if err := json.Unmarshal([]byte(out[i:]), &rows); err != nil {
			t.Fatalf("rabbitmqctl %v printed %q: %v", args, out, err)
		}
	}
	return rows
}
