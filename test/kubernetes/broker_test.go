//go:build kubernetes

package kubernetes

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/testkit/proxy"
)

func prefixOf(service string) string   { p, _, _ := strings.Cut(service, "-"); return p }
func exchangeOf(service string) string { return prefixOf(service) + ".main-exchange" }
func queueOf(service string) string    { return prefixOf(service) + ".queue." + service }
func retryOf(service string) string    { return prefixOf(service) + ".retry-queue." + service }
func dlqOf(service string) string      { return prefixOf(service) + ".dlq." + service }

// empty fails the test when a queue is missing or holds something.
func (s *scene) empty(queues ...string) {
	s.t.Helper()
	for _, queue := range queues {
		if n := brokertest.Ready(s.t, env.amqp, queue); n != 0 {
			s.t.Errorf("queue %s has %d messages", queue, n)
		}
	}
}

// remove deletes what the sidecar declared for a service with the fanout topology.
func (s *scene) remove(ch *amqp.Channel) {
	for _, q := range []string{queueOf(s.service), retryOf(s.service), dlqOf(s.service)} {
		if _, err := ch.QueueDelete(q, false, false, false); err != nil {
			s.t.Error(err)
		}
	}
	for _, x := range []string{exchangeOf(s.service), prefixOf(s.service) + ".retry-exchange." + s.service} {
		if err := ch.ExchangeDelete(x, false, false); err != nil {
			s.t.Error(err)
		}
	}
}

// order is the body of a message: what test/kubernetes/app shall do with it.
type order struct {
	ID        string `json:"id"`
	Collector string `json:"collector"`
	Work      string `json:"work,omitempty"`
	Then      string `json:"then,omitempty"`
}

// publish publishes a message for each order and returns their ids, after the broker has confirmed them all.
func (s *scene) publish(orders ...order) []string {
	s.t.Helper()
	ids, ch := make([]string, 0, len(orders)), s.channel()
	for _, o := range orders {
		ids = append(ids, s.send(ch, o))
	}
	return ids
}

// channel is for messages to the service: it is there when the sidecar has declared the queue.
func (s *scene) channel() *amqp.Channel {
	s.t.Helper()
	brokertest.Eventually(s.t, patience, "the queue of the service is there", func() bool {
		return brokertest.Ready(s.t, env.amqp, queueOf(s.service)) >= 0
	})
	return brokertest.Channel(s.t, env.amqp)
}

// send publishes one message and waits for its confirm. A message that reached no queue fails the test.
func (s *scene) send(ch *amqp.Channel, o order) string {
	s.t.Helper()
	o.ID, o.Collector = fmt.Sprintf("%s-%d", s.service, s.sent.Add(1)), s.ledger.url
	body := must.Get(json.Marshal(o))(s.t)
	brokertest.Publish(s.t, ch, exchangeOf(s.service), "", amqp.Publishing{
		MessageId: o.ID, ContentType: "application/json", Body: body,
	})
	return o.ID
}

// load publishes messages steadily until stop is called, which returns the ids of all.
func (s *scene) load(pause time.Duration, o order) (stop func() []string) {
	s.t.Helper()
	ch, ids, end := s.channel(), make(chan []string, 1), make(chan struct{})
	go func() {
		var sent []string
		defer func() { ids <- sent }() // also when a message fails the test
		for {
			sent = append(sent, s.send(ch, o))
			select {
			case <-end:
				return
			case <-time.After(pause):
			}
		}
	}()
	return sync.OnceValue(func() []string { close(end); return <-ids })
}

// forwarder is an address of the broker that a test opens and closes. It is closed at first.
type forwarder struct {
	*proxy.Proxy
	s   *scene
	url string // as pods reach it
}

func (s *scene) newForwarder() *forwarder {
	s.t.Helper()
	target := must.Get(url.Parse(env.amqp))(s.t)
	if target.Port() == "" {
		target.Host = net.JoinHostPort(target.Hostname(), "5672")
	}
	p := must.Get(proxy.Start(proxy.Options{Target: target.Host, Listen: ":0"}))(s.t)
	p.Refuse()
	s.t.Cleanup(p.Close)
	_, port, _ := net.SplitHostPort(p.Addr())
	u := must.Get(url.Parse(env.amqpPods))(s.t)
	u.Host = net.JoinHostPort(env.host, port)
	return &forwarder{p, s, u.String()}
}

func (f *forwarder) open() {
	f.s.t.Helper()
	must.Do(f.s.t, f.Open())
}
