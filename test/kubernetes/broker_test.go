//go:build kubernetes

package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/must"
)

// broker is a test's connection to RabbitMQ.
type broker struct {
	t    testing.TB
	conn *amqp.Connection

	mu   sync.Mutex
	sent int
}

func dialBroker(t testing.TB) *broker {
	t.Helper()
	conn := must.Get(amqp.Dial(env.amqp))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return &broker{t: t, conn: conn}
}

// messages returns how many messages are ready in a queue; an error when there is no such queue.
func (b *broker) messages(queue string) (int, error) {
	ch, err := b.conn.Channel()
	if err != nil {
		return 0, err
	}
	defer func() { _ = ch.Close() }()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	return q.Messages, err
}

// empty fails the test when a queue is missing or holds something.
func (b *broker) empty(queues ...string) {
	b.t.Helper()
	for _, queue := range queues {
		if n, err := b.messages(queue); err != nil || n != 0 {
			b.t.Errorf("queue %s has %d messages, %v", queue, n, err)
		}
	}
}

// get takes the one message that a queue has to hold.
func (b *broker) get(queue string) amqp.Delivery {
	b.t.Helper()
	ch := must.Get(b.conn.Channel())(b.t)
	defer func() { _ = ch.Close() }()
	d, ok, err := ch.Get(queue, true)
	if err != nil || !ok {
		b.t.Fatalf("queue %s has no message: %v", queue, err)
	}
	return d
}

// remove deletes what the sidecar declared for a service with the fanout topology.
func (b *broker) remove(service string) {
	ch, err := b.conn.Channel()
	if err != nil {
		b.t.Error(err)
		return
	}
	defer func() { _ = ch.Close() }()
	for _, q := range []string{queueOf(service), retryOf(service), dlqOf(service)} {
		if _, err := ch.QueueDelete(q, false, false, false); err != nil {
			b.t.Error(err)
		}
	}
	for _, x := range []string{exchangeOf(service), prefixOf(service) + ".retry-exchange." + service} {
		if err := ch.ExchangeDelete(x, false, false); err != nil {
			b.t.Error(err)
		}
	}
}

func prefixOf(service string) string   { p, _, _ := strings.Cut(service, "-"); return p }
func exchangeOf(service string) string { return prefixOf(service) + ".main-exchange" }
func queueOf(service string) string    { return prefixOf(service) + ".queue." + service }
func retryOf(service string) string    { return prefixOf(service) + ".retry-queue." + service }
func dlqOf(service string) string      { return prefixOf(service) + ".dlq." + service }

// order is the body of a message: what test/kubernetes/app shall do with it.
type order struct {
	ID        string `json:"id"`
	Collector string `json:"collector"`
	Work      string `json:"work,omitempty"`
	Then      string `json:"then,omitempty"`
}

// publish publishes a message for each order and returns their ids, after the broker has confirmed them all. It waits
// for the sidecar to have declared the queue.
func (s *scene) publish(orders ...order) []string {
	s.t.Helper()
	s.waitQueue()
	ids := make([]string, 0, len(orders))
	for _, o := range orders {
		id := must.Get(s.send(o))(s.t)
		ids = append(ids, id)
	}
	return ids
}

func (s *scene) waitQueue() {
	s.t.Helper()
	eventually(s.t, "queue of the service", func() error { _, err := s.broker.messages(queueOf(s.service)); return err })
}

// send publishes one message and waits for its confirm. A message that reached no queue is an error.
func (s *scene) send(o order) (string, error) {
	b := s.broker
	b.mu.Lock()
	b.sent++
	o.ID, o.Collector = fmt.Sprintf("%s-%d", s.service, b.sent), s.ledger.url
	b.mu.Unlock()
	body, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	ch, err := b.conn.Channel()
	if err != nil {
		return "", err
	}
	defer func() { _ = ch.Close() }()
	if err := ch.Confirm(false); err != nil {
		return "", err
	}
	returned := ch.NotifyReturn(make(chan amqp.Return, 1))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, exchangeOf(s.service), "", true, false, amqp.Publishing{
		MessageId: o.ID, ContentType: "application/json", DeliveryMode: amqp.Persistent, Body: body,
	})
	if err != nil {
		return "", err
	}
	if ok, err := confirm.WaitContext(ctx); err != nil || !ok {
		return "", fmt.Errorf("message %s was not confirmed: %w", o.ID, err)
	}
	select {
	case <-returned: // the broker returns before it confirms
		return "", errors.New("message " + o.ID + " reached no queue")
	default:
		return o.ID, nil
	}
}

// load publishes messages steadily until stop is called, which returns the ids of all.
func (s *scene) load(pause time.Duration, o order) (stop func() []string) {
	s.t.Helper()
	s.waitQueue()
	ids, end := make(chan []string, 1), make(chan struct{})
	go func() {
		var sent []string
		defer func() { ids <- sent }()
		for {
			id, err := s.send(o)
			if err != nil {
				s.t.Error(err)
				return
			}
			sent = append(sent, id)
			select {
			case <-end:
				return
			case <-time.After(pause):
			}
		}
	}()
	return sync.OnceValue(func() []string { close(end); return <-ids })
}
