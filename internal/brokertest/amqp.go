package brokertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/console"
	"sidecar/internal/testkit/depth"
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

// link is a connection that the helpers of one test share for one purpose and one URL.
type link struct {
	url   string
	mu    sync.Mutex
	conn  *amqp.Connection
	polls *amqp.Channel
}

// links holds the links of the running tests by purpose, test name and URL.
var links sync.Map

// Polls and publishes have a link each: during an alarm the broker stops reading from a connection that publishes.
func linkOf(t testing.TB, url, purpose string) *link {
	key := purpose + " " + t.Name() + " " + url
	l, found := links.LoadOrStore(key, &link{url: url})
	if !found {
		t.Cleanup(func() { links.Delete(key) })
	}
	return l.(*link)
}

// open returns a new channel, on a new connection if the last one has ended.
func (l *link) open(t testing.TB) *amqp.Channel {
	t.Helper()
	for fresh := false; ; {
		if l.conn == nil || l.conn.IsClosed() {
			l.conn, fresh = Conn(t, l.url), true
		}
		ch, err := l.conn.Channel()
		if err == nil {
			return ch
		}
		if l.conn = nil; fresh {
			t.Fatalf("open a channel: %v", err)
		}
	}
}

// poll runs a call on a channel of the test. A connection that ended since the last call is replaced; an answer of the
// broker that ends only the channel is returned.
func poll(t testing.TB, url string, call func(*amqp.Channel) error) error {
	t.Helper()
	l := linkOf(t, url, "polls")
	l.mu.Lock()
	defer l.mu.Unlock()
	for again := false; ; again = true {
		if l.polls == nil || l.polls.IsClosed() {
			l.polls = l.open(t)
		}
		err := call(l.polls)
		answer, ok := errors.AsType[*amqp.Error](err)
		if err == nil || again || ok && answer.Server && answer.Recover {
			return err
		}
	}
}

// Channel returns a channel in confirm mode. The channels of a test are on one connection, which is closed when the
// test ends.
func Channel(t testing.TB, url string) *amqp.Channel {
	t.Helper()
	l := linkOf(t, url, "channels")
	l.mu.Lock()
	defer l.mu.Unlock()
	ch := l.open(t)
	if err := ch.Confirm(false); err != nil {
		t.Fatalf("open a channel: %v", err)
	}
	return ch
}

// Queue declares a durable queue that is deleted when the test ends, and returns its name.
func Queue(t testing.TB, url, name string, args amqp.Table) string {
	t.Helper()
	err := poll(t, url, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		return err
	})
	if err != nil {
		t.Fatalf("declare queue %q: %v", name, err)
	}
	t.Cleanup(func() {
		_ = poll(t, url, func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete(name, false, false, false)
			return err
		})
	})
	return name
}

// Publish sends msg, mandatory and persistent, and waits for the confirm. A message that ends in no queue fails the
// test.
func Publish(t testing.TB, ch *amqp.Channel, exchange, key string, msg amqp.Publishing) {
	t.Helper()
	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	msg.DeliveryMode = amqp.Persistent
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for ok := false; !ok; { // a quorum queue that was just declared may refuse the first one
		confirm, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, msg)
		if err == nil {
			ok, err = confirm.WaitContext(ctx)
		}
		if err != nil {
			t.Fatalf("publish to %q with key %q: not confirmed: %v", exchange, key, err)
		}
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
	var d amqp.Delivery
	Eventually(t, limit, "a message in "+queue, func() (ok bool) {
		err := poll(t, url, func(ch *amqp.Channel) (err error) {
			d, ok, err = ch.Get(queue, true)
			return err
		})
		if err != nil {
			t.Fatalf("get from %q: %v", queue, err)
		}
		return ok
	})
	return d
}

// Ready counts the messages in queue that wait for a consumer; -1 when there is no such queue.
func Ready(t testing.TB, url, queue string) int {
	t.Helper()
	return inspect(t, url, queue).Messages
}

// WaitReady waits until queue holds exactly n ready messages.
func WaitReady(t testing.TB, url, queue string, n int) {
	t.Helper()
	eventually(t, time.Minute, func() (bool, string) {
		have := Ready(t, url, queue)
		return have == n, fmt.Sprintf("%d ready messages in %s; there are %d", n, queue, have)
	})
}

func inspect(t testing.TB, url, queue string) (q amqp.Queue) {
	t.Helper()
	err := poll(t, url, func(ch *amqp.Channel) (err error) {
		q, err = depth.Of(ch, queue)
		return err
	})
	if closed, ok := errors.AsType[*amqp.Error](err); ok && closed.Code == amqp.NotFound {
		return amqp.Queue{Messages: -1, Consumers: -1}
	}
	if err != nil {
		t.Fatalf("inspect queue %q: %v", queue, err)
	}
	return q
}

// Leader evaluates an Erlang expression about L, the process that leads a quorum queue.
func Leader(t testing.TB, queue, expression string) {
	t.Helper()
	Eval(t, fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(%s, queue, %s)), L = amqqueue:get_pid(Q), %s`,
		console.Binary(VhostName(t)), console.Binary(queue), expression))
}

// Busy keeps the leader of a quorum queue from answering for a time in which the broker gives up on it twice.
func Busy(t testing.TB, queue string) {
	t.Helper()
	Leader(t, queue, `ok = sys:suspend(L), spawn(fun() -> timer:sleep(600), sys:resume(L) end)`)
}

// QueueLimit allows the test's virtual host n queues.
func QueueLimit(t testing.TB, n int) {
	t.Helper()
	Eval(t, fmt.Sprintf(`rabbit_vhost_limit:parse_set(%s, <<"{\"max-queues\":%d}">>, %s)`, console.Binary(VhostName(t)), n,
		console.Actor))
}

// NodeDown makes the broker answer about a classic queue as it does while the node that has the queue is down, and
// returns the words of that answer. From RabbitMQ 4.0 on that answer takes a minute and a half, and a cluster: the
// broker then goes on as before, and the words are those that a cluster was seen to send.
func NodeDown(t testing.TB, queue string) (says string, down bool) {
	t.Helper()
	if !strings.HasPrefix(Version(t), "3.") {
		return fmt.Sprintf("NOT_FOUND - failed to perform operation on queue '%s' in vhost '/' due to timeout", queue), false
	}
	Eval(t, fmt.Sprintf(`mnesia:dirty_delete(rabbit_queue, rabbit_misc:r(%s, queue, %s))`, console.Binary(VhostName(t)),
		console.Binary(queue)))
	return "NOT_FOUND - home node ", true
}
