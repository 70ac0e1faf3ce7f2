package broker

import (
	"context"
	"encoding/base64"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

// requester consumes direct replies on a channel of its own. It returns its address.
func requester(t *testing.T) (address string, ch *amqp.Channel, replies <-chan amqp.Delivery) {
	t.Helper()
	ch = brokertest.Channel(t, brokertest.URL(t))
	replies = must.Get(ch.Consume(message.DirectReply, "", true, false, false, false, nil))(t)
	q := queue(t)
	must.Do(t, ch.Publish("", q, false, false, amqp.Publishing{ReplyTo: message.DirectReply}))
	return brokertest.Get(t, brokertest.URL(t), q, 10*time.Second).ReplyTo, ch, replies
}

// TestDirectReply: a reply has succeeded if and only if its requester was there, whatever the version of the broker.
func TestDirectReply(t *testing.T) {
	t.Parallel()
	for how, way := range ways(t, publisher(t, options(t))) {
		t.Run(how, func(t *testing.T) {
			publish := func(pub *message.Publication) error { return way(within(t, 30*time.Second), pub) }
			address, ch, replies := requester(t)
			for _, body := range []string{"first", "second"} {
				wantErr(t, publish(publication(address, body))) // the requester is there
				if d := <-replies; string(d.Body) != body {
					t.Errorf("the requester got %q", d.Body)
				}
			}
			must.Do(t, ch.Close())
			for range 2 {
				wantErr(t, publish(publication(address, "late")), ErrNoRequester, ErrUnroutable) // the requester has gone
			}
		})
	}
}

// TestDirectReplyWithoutRights: the question takes no right.
func TestDirectReplyWithoutRights(t *testing.T) {
	t.Parallel()
	const password = "a-password-for-one-test"
	name := brokertest.User(t, password)
	brokertest.Ctl(t, "set_permissions", name, "^$", "^amq\\.default$", "^$")
	p := publisher(t, options(t, brokertest.URLAs(t, name, password)))
	address, ch, replies := requester(t)
	must.Do(t, p.Publish(within(t, 30*time.Second), publication(address, "answer")))
	if d := <-replies; string(d.Body) != "answer" {
		t.Errorf("the requester got %q", d.Body)
	}
	must.Do(t, ch.Close())
	wantErr(t, p.Publish(within(t, 30*time.Second), publication(address, "late")), ErrNoRequester)
}

// TestDirectReplyToAnyAddress: whatever address a request had, the connection that publishes stays. RabbitMQ closes a
// connection that asks for some of these addresses, or publishes to them; which ones depends on its version.
func TestDirectReplyToAnyAddress(t *testing.T) {
	t.Parallel()
	p, q := publisher(t, options(t)), queue(t)
	l := p.NewLane("")
	valid, _, replies := requester(t)
	session := p.current()
	prefix := message.DirectReply + "."
	process, key, _ := strings.Cut(strings.TrimPrefix(valid, prefix), ".")
	addresses := []string{
		"", ".", "x", "g1", "g1h2", "g1h2AA.x", "g2.x.y", "a.b.c", "AAAA.AAAA", "!!!!.!!!!", "\x00", "\xff\xfe",
		process, process + ".AAAA", process + "-_." + key, process + "." + key + "x",
		// of another cluster
		"g1h2AA5yZXBseUA4MTgxMjM1NgAAAsIAAAAAawH6wA==." + key, strings.Repeat("A", 255-len(prefix)),
	}
	if short := strings.TrimRight(process, "="); short != process { // the name of the node decides whether it is padded
		addresses = append(addresses, short+"."+key)
	}
	for _, address := range addresses {
		for _, publish := range []func() error{
			func() error { return p.Publish(within(t, 30*time.Second), publication(prefix+address, "x")) },
			func() error { return l.Publish(within(t, 30*time.Second), publication(prefix+address, "x")) },
		} {
			if err := publish(); !errors.Is(err, ErrNoRequester) || errors.Is(err, ErrUnknown) {
				t.Errorf("%q: %v", address, err)
			}
		}
	}
	must.Do(t, l.Publish(within(t, 30*time.Second), publication(valid, "reply")))
	if d := <-replies; string(d.Body) != "reply" {
		t.Errorf("the requester got %q", d.Body)
	}
	// Names that only look like addresses are those of queues.
	for _, name := range []string{message.DirectReply, message.DirectReply + "x"} {
		if err := p.Publish(within(t, 30*time.Second), publication(name, "x")); !errors.Is(err, ErrUnroutable) || errors.Is(err, ErrNoRequester) {
			t.Errorf("%q: %v", name, err)
		}
	}
	must.Do(t, l.Publish(within(t, 30*time.Second), publication(q, "after")))
	if p.current() != session {
		t.Error("the connection was lost")
	}
}

// silentAddress returns an address of the broker's first process, which does not answer.
func silentAddress(t *testing.T, valid, key string) string {
	t.Helper()
	process, _, _ := strings.Cut(strings.TrimPrefix(valid, message.DirectReply+"."), ".")
	pid := must.Get(base64.StdEncoding.DecodeString(process))(t)
	clear(pid[len(pid)-12 : len(pid)-4])
	return message.DirectReply + "." + base64.StdEncoding.EncodeToString(pid) + "." + key
}

// TestRequesterThatDoesNotAnswer: an address may name any process of the broker, such as its first one. No caller
// waits longer than its deadline, and it is not asked again soon, also for another key.
func TestRequesterThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	p := publisher(t, options(t))
	valid, _, replies := requester(t)
	must.Do(t, p.Publish(within(t, time.Minute), publication(valid, "before")))
	<-replies
	err := p.Publish(within(t, requesterTimeout/2), publication(silentAddress(t, valid, "AAAA"), "x"))
	if !errors.Is(err, ErrBusy) || errors.Is(err, ErrUnroutable) {
		t.Errorf("the deadline of the message is over: %v", err)
	}
	// The question goes on, and is the last one.
	wantErr(t, p.Publish(within(t, time.Minute), publication(silentAddress(t, valid, "BBBB"), "x")), errSilent)
	q := &p.current().requesters
	if q.session.Err() == nil || len(q.silent) != 1 {
		t.Errorf("the process was asked again: %v", q.silent)
	}
	must.Do(t, p.Publish(within(t, time.Minute), publication(valid, "reply")))
	if d := <-replies; string(d.Body) != "reply" {
		t.Errorf("the requester got %q", d.Body)
	}
	q.silent[0].until = time.Now().Add(-time.Second)
	wantErr(t, p.Publish(within(t, time.Minute), publication(silentAddress(t, valid, "BBBB"), "x")), errSilent)
	if len(q.silent) != 1 {
		t.Errorf("%d processes are remembered", len(q.silent))
	}
}

// TestFindRequesterOnAHalfOpenConnection: a requester is there although the connection that asks has lost its other end.
func TestFindRequesterOnAHalfOpenConnection(t *testing.T) {
	t.Parallel()
	o := options(t)
	var dialled atomic.Int32
	var lost atomic.Bool
	o.Connect = func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := dialTCP(ctx, addr)
		if dialled.Add(1) == 2 {
			c = &halfOpen{c, &lost}
		}
		return c, err
	}
	s := dial(t, o)
	address, _, _ := requester(t)
	must.Do(t, s.findRequester(within(t, time.Minute), publication(address, "x")))
	lost.Store(true)
	must.Do(t, s.findRequester(within(t, time.Minute), publication(address, "x")))
	if dialled.Load() != 3 || len(s.requesters.silent) != 0 {
		t.Errorf("%d connections; silent: %v", dialled.Load(), s.requesters.silent)
	}
}

// halfOpen is a connection whose other end gets nothing more once it is lost.
type halfOpen struct {
	net.Conn
	lost *atomic.Bool
}

func (c *halfOpen) Write(b []byte) (int, error) {
	if c.lost.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}
