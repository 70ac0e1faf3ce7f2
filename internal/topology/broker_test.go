package topology

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
)

// session dials the way the sidecar does.
func session(t testing.TB, url string) *broker.Session {
	t.Helper()
	s, err := broker.NewDialer(broker.Options{
		URLs: func() ([]string, error) { return []string{url}, nil }, Name: "test " + t.Name(),
	}).Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func channel(t testing.TB, url string) *amqp.Channel { return brokertest.Channel(t, url) }
func publish(t testing.TB, url, exchange, key string, m amqp.Publishing) {
	brokertest.Publish(t, channel(t, url), exchange, key, m)
}

func path(t testing.TB, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal("the URL cannot be parsed")
	}
	return strings.TrimPrefix(u.Path, "/")
}

// ensure fails the test on trouble with the session, and when looking at everything at once hides a finding.
func ensure(t testing.TB, url string, p *Plan, mode Mode) []Finding {
	t.Helper()
	f, err := Ensure(context.Background(), session(t, url), p, mode)
	if err != nil {
		t.Fatal(err)
	}
	if EnsureAtOnce(context.Background(), session(t, url), p, mode) && len(f) > 0 {
		t.Errorf("%s: at once everything fits, one by one not: %v", mode, f)
	}
	return f
}

// fits fails the test when there is anything to say about the topology.
func fits(t testing.TB, url string, p *Plan, mode Mode) {
	t.Helper()
	for _, f := range ensure(t, url, p, mode) {
		t.Errorf("%s: %s", mode, f)
	}
}

// user makes a user with the given rights in the virtual host of url, and returns its URL.
func user(t testing.TB, raw string, p Permissions) string {
	t.Helper()
	name := brokertest.Name(t, "user")
	brokertest.Ctl(t, "add_user", name, "secret")
	brokertest.CtlLater(t, "delete_user", name)
	brokertest.Ctl(t, "set_permissions", "-p", path(t, raw), name, p.Configure, p.Write, p.Read)
	u, _ := url.Parse(raw)
	u.User = url.UserPassword(name, "secret")
	return u.String()
}

// oneUser makes a user, and returns a function that gives it other rights, which hold for new connections. rabbitmqctl
// is slow: one call a time is all that is needed.
func oneUser(t testing.TB, raw string) func(Permissions) string {
	t.Helper()
	name := brokertest.Name(t, "user")
	brokertest.Ctl(t, "add_user", name, "secret")
	brokertest.CtlLater(t, "delete_user", name)
	u, _ := url.Parse(raw)
	u.User = url.UserPassword(name, "secret")
	return func(p Permissions) string {
		t.Helper()
		brokertest.Ctl(t, "set_permissions", "-p", path(t, raw), name, p.Configure, p.Write, p.Read)
		return u.String()
	}
}

// soon is for what the broker does by itself.
const soon = 20 * time.Second
