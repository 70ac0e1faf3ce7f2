package declare

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// session dials the way the sidecar does.
func session(t testing.TB, url string) *broker.Session {
	t.Helper()
	s := must.Get(broker.NewDialer(broker.Options{
		URLs: func() ([]string, error) { return []string{url}, nil }, Name: "test " + t.Name(),
		Timeout: soon,
	}).Dial(context.Background()))(t)
	t.Cleanup(s.Close)
	return s
}

func channel(t testing.TB, url string) *amqp.Channel { return brokertest.Channel(t, url) }
func publish(t testing.TB, url, exchange, key string, m amqp.Publishing) {
	brokertest.Publish(t, channel(t, url), exchange, key, m)
}

// travels fails the test unless a message returns from every wait, and one that is parked arrives.
func travels(t testing.TB, url string, p *topology.Plan) {
	t.Helper()
	ch := channel(t, url)
	for _, w := range p.Waits {
		brokertest.Publish(t, ch, w.Exchange, w.Key, amqp.Publishing{})
	}
	brokertest.Publish(t, ch, p.Park.Exchange, p.Park.Key, amqp.Publishing{})
	for range p.Waits {
		get(t, ch, p.Queue)
	}
	brokertest.Get(t, brokertest.URL(t), p.Park.Queue, soon) // the user need not read it
}

// get takes one message with the rights of the channel's user.
func get(t testing.TB, ch *amqp.Channel, queue string) (d amqp.Delivery) {
	t.Helper()
	brokertest.Eventually(t, soon, "a message in "+queue, func() (ok bool) {
		var err error
		if d, ok, err = ch.Get(queue, true); err != nil {
			t.Fatal(err)
		}
		return ok
	})
	return d
}

// ensure fails the test on trouble with the session, and when checking everything at once hides a finding.
func ensure(t testing.TB, url string, p *topology.Plan, mode topology.Mode) []Finding {
	t.Helper()
	f := must.Get(Ensure(context.Background(), session(t, url), p, mode))(t).Findings
	if Compare(context.Background(), session(t, url), p, mode) && len(f) > 0 {
		t.Errorf("%s: at once everything fits, one by one not: %v", mode, f)
	}
	return f
}

// fits fails the test when there is anything to say about the topology.
func fits(t testing.TB, url string, p *topology.Plan, mode topology.Mode) {
	t.Helper()
	for _, f := range ensure(t, url, p, mode) {
		t.Errorf("%s: %s", mode, f)
	}
}

// declared makes a plan and its objects in the virtual host of the test.
func declared(t testing.TB, o topology.Options) (url string, p *topology.Plan) {
	t.Helper()
	url, p = brokertest.URL(t), build(t, o)
	fits(t, url, p, topology.ModeDeclare)
	return url, p
}

// oneUser makes a user, and returns a function that gives it other rights, which hold for new connections.
func oneUser(t testing.TB) func(topology.Permissions) string {
	t.Helper()
	name := brokertest.User(t, "secret")
	return func(p topology.Permissions) string {
		t.Helper()
		brokertest.Ctl(t, "set_permissions", name, p.Configure, p.Write, p.Read)
		return brokertest.URLAs(t, name, "secret")
	}
}

// soon is for what the broker does by itself.
const soon = time.Minute

// build makes a plan that must be possible.
func build(t testing.TB, o topology.Options) *topology.Plan {
	t.Helper()
	return must.Get(topology.Build(o))(t)
}

// queue is a queue of p by its name.
func queue(p *topology.Plan, name string) *topology.Queue {
	for i := range p.Queues {
		if p.Queues[i].Name == name {
			return &p.Queues[i]
		}
	}
	return nil
}
