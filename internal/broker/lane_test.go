package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

// lane is a lane on a publisher of its own; both have ended when the test ends.
func lane(t testing.TB, url, exchange string) *Lane {
	t.Helper()
	p := NewPublisher(NewDialer(options(url)))
	l := p.NewLane(exchange)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		l.Wait()
	})
	connected(t, p)
	return l
}

func publication(key, body string) *Publication {
	return &Publication{Kind: KindPublish, Key: key, Msg: amqp.Publishing{Body: []byte(body)}}
}

// TestLaneIsShared: many goroutines, one channel, every message confirmed.
func TestLaneIsShared(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	queue := queue(t)
	l := lane(t, url, "")
	var clients sync.WaitGroup
	for i := range 40 {
		clients.Go(func() {
			for range 50 {
				if err := l.Publish(within(t, 30*time.Second), publication(queue, strings.Repeat("x", i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	clients.Wait()
	brokertest.WaitReady(t, url, queue, 2000)
	if l.pipe.tried != leastTry {
		t.Errorf("%d bytes were tried", l.pipe.tried)
	}
}

// TestLaneKeepsOrder: what is begun in an order arrives in it.
func TestLaneKeepsOrder(t *testing.T) {
	t.Parallel()
	url, queue := brokertest.URL(t), queue(t)
	l := lane(t, url, "")
	waits := make([]func() error, 0, 200)
	for i := range 200 {
		wait, err := l.Begin(within(t, 30*time.Second), publication(queue, fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		waits = append(waits, wait)
	}
	for i, wait := range waits {
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		if d := brokertest.Get(t, url, queue, 10*time.Second); string(d.Body) != fmt.Sprint(i) {
			t.Fatalf("%d is %s", i, d.Body)
		}
	}
}

// TestLaneAfterARefusal: a right that is taken closes the channel under those that are on it. From then on exactly the
// message that is refused is refused, and no other one is left unknown.
func TestLaneAfterARefusal(t *testing.T) {
	t.Parallel()
	base := brokertest.URL(t)
	user := brokertest.User(t, "secret-password")
	exchange, queue := brokertest.Name(t, "x"), queue(t)
	ch := brokertest.Channel(t, base)
	if err := ch.ExchangeDeclare(exchange, "topic", false, true, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind(queue, "#", exchange, false, nil); err != nil {
		t.Fatal(err)
	}
	o := options(base)
	o.Username, o.Password = text(user), text("secret-password")
	p := publisher(t, o)
	l := p.NewLane(exchange)
	publish := func(key string) error { return l.Publish(within(t, 30*time.Second), publication(key, "x")) }
	if err := publish("good.a"); err != nil {
		t.Fatal(err)
	}
	brokertest.Ctl(t, "set_topic_permissions", user, exchange, `^good\..*`, ".*")
	brokertest.Eventually(t, 30*time.Second, "the right is gone", func() bool { // the channel remembers what it asked for a while
		return errors.Is(publish("bad"), ErrRefused)
	})
	var clients sync.WaitGroup
	for range 10 {
		clients.Go(func() {
			for range 20 {
				if err := publish("good.b"); err != nil {
					t.Errorf("an innocent: %v", err)
				}
				if err := publish("bad"); !errors.Is(err, ErrRefused) || errors.Is(err, ErrUnknown) {
					t.Errorf("the culprit: %v", err)
				}
			}
		})
	}
	clients.Wait()
	l.apart.Store(0) // a minute later
	if err := publish("good.c"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestLaneOfAMissingExchange: each message is told so, and the first one after it was declared goes.
func TestLaneOfAMissingExchange(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	exchange, queue := brokertest.Name(t, "x"), queue(t)
	l := lane(t, url, exchange)
	for range 3 {
		if err := l.Publish(within(t, 30*time.Second), publication("k", "x")); !errors.Is(err, ErrUnroutable) || errors.Is(err, ErrUnknown) {
			t.Errorf("%v", err)
		}
	}
	ch := brokertest.Channel(t, url)
	if err := ch.ExchangeDeclare(exchange, "fanout", false, true, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind(queue, "", exchange, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Publish(within(t, 30*time.Second), publication("k", "x")); err != nil {
		t.Errorf("%v", err)
	}
	l.apart.Store(0)
	if err := l.Publish(within(t, 30*time.Second), publication("k", "x")); err != nil {
		t.Errorf("%v", err)
	}
	// Gone again, with messages on the channel: they are unknown, and the next ones are told.
	if err := ch.ExchangeDelete(exchange, false, false); err != nil {
		t.Fatal(err)
	}
	if err := l.Publish(within(t, 30*time.Second), publication("k", "x")); !errors.Is(err, ErrUnknown) || !errors.Is(err, ErrRefused) {
		t.Errorf("%v", err)
	}
	if err := l.Publish(within(t, 30*time.Second), publication("k", "x")); !errors.Is(err, ErrUnroutable) || errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
}

// TestLaneTriesSizes: a body that is larger than all before it is tried first, as a larger one where the broker takes that.
func TestLaneTriesSizes(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	node.MaxSize(3 << 20)
	queue := queue(t)
	l := lane(t, brokertest.URL(t), "")
	for _, c := range []struct{ size, tried int }{
		{0, leastTry}, {leastTry, leastTry}, {leastTry + 1, 2 * leastTry}, {paddedTry, paddedTry}, {paddedTry + 1, paddedTry + 1}, {3 << 20, 3 << 20}, {1, 3 << 20},
	} {
		if err := l.Publish(within(t, 30*time.Second), publication(queue, strings.Repeat("x", c.size))); err != nil || l.pipe.tried != c.tried {
			t.Errorf("%d bytes: %v, %d were tried", c.size, err, l.pipe.tried)
		}
	}
	if err := l.Publish(within(t, 30*time.Second), publication(queue, strings.Repeat("x", 3<<20+1))); !errors.Is(err, ErrInvalid) || !errors.Is(err, ErrRefused) {
		t.Errorf("%v", err)
	}
	if l.apart.Load() != 0 {
		t.Error("one that is too large sends the others apart")
	}
	node.MaxSize(100)
	l = lane(t, brokertest.URL(t), "")
	if err := l.Publish(within(t, 30*time.Second), publication(queue, "x")); err != nil || l.pipe.tried != 1 {
		t.Errorf("a broker that takes hardly anything: %v, %d were tried", err, l.pipe.tried)
	}
}

// TestLaneReplacesAPipe: one with too many answers that never came makes way for another, and nothing under way on it is lost.
func TestLaneReplacesAPipe(t *testing.T) {
	t.Parallel()
	queue := queue(t)
	l := lane(t, brokertest.URL(t), "")
	wait, err := l.Begin(within(t, 30*time.Second), publication(queue, "x"))
	if err != nil {
		t.Fatal(err)
	}
	old := l.pipe
	old.abandoned.Store(maxAbandoned + 1)
	if err := l.Publish(within(t, 30*time.Second), publication(queue, "x")); err != nil || l.pipe == old {
		t.Errorf("%v", err)
	}
	if err := wait(); err != nil {
		t.Errorf("%v", err)
	}
	brokertest.Eventually(t, 30*time.Second, "the old one is closed", old.ended)
	if err := l.Publish(within(t, 30*time.Second), publication(queue, "x")); err != nil {
		t.Errorf("%v", err)
	}
}

// TestLaneBounds: what cannot be sent in time, or at all, is told so before anything is sent.
func TestLaneBounds(t *testing.T) {
	t.Parallel()
	queue := queue(t)
	proxy := brokertest.NewProxy(t, brokertest.URL(t))
	l := lane(t, proxy.URL(t, brokertest.URL(t)), "")
	if err := l.Publish(within(t, 30*time.Second), publication(strings.Repeat("k", 256), "")); !errors.Is(err, ErrInvalid) {
		t.Errorf("a long key: %v", err)
	}
	l.turn <- struct{}{}
	if err := l.Publish(within(t, 100*time.Millisecond), publication(queue, "x")); !errors.Is(err, ErrBusy) {
		t.Errorf("no turn: %v", err)
	}
	l.leave()
	proxy.Stall(brokertest.Down)
	if err := l.Publish(within(t, 100*time.Millisecond), publication(queue, "x")); !errors.Is(err, ErrBusy) {
		t.Errorf("no answer to the question: %v", err)
	}
	if err := l.Publish(within(t, 100*time.Millisecond), publication(queue, "x")); !errors.Is(err, ErrBusy) {
		t.Errorf("behind the question: %v", err)
	}
	proxy.Cut()
	proxy.Restore(t)
	brokertest.Eventually(t, 60*time.Second, "published again", func() bool {
		return l.Publish(within(t, 5*time.Second), publication(queue, "x")) == nil
	})
	never := NewPublisher(NewDialer(options(brokertest.URL(t)))).NewLane("")
	if err := never.Publish(within(t, time.Second), publication(queue, "x")); !errors.Is(err, ErrDisconnected) {
		t.Errorf("never connected: %v", err)
	}
}

// TestLaneInAnAlarm: a connection that nobody has told learns of the alarm by a question, keeps standing, and is good again
// when the alarm is over; nothing of what was refused is published.
func TestLaneInAnAlarm(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	url, queue := brokertest.URL(t), queue(t)
	l := lane(t, url, "")
	calm := node.Alarm()
	session := l.publisher.current().session
	for range 3 {
		if err := l.Publish(within(t, 30*time.Second), publication(queue, "refused")); !errors.Is(err, ErrBlocked) || errors.Is(err, ErrUnknown) {
			t.Errorf("%v", err)
		}
	}
	calm()
	brokertest.Eventually(t, 30*time.Second, "the alarm is over", func() bool {
		return l.Publish(within(t, 5*time.Second), publication(queue, "after")) == nil
	})
	if d := brokertest.Get(t, url, queue, 10*time.Second); string(d.Body) != "after" {
		t.Errorf("%s was published", d.Body)
	}
	if l.publisher.current().session != session {
		t.Error("the connection was given up")
	}
}

// full takes all the room of the lane's pipe and returns what gives one place back.
func full(t testing.TB, l *Lane, queue string) (free func()) {
	t.Helper()
	if err := l.Publish(within(t, 30*time.Second), publication(queue, "first")); err != nil {
		t.Fatal(err)
	}
	for range pipeWindow {
		l.pipe.slots <- struct{}{}
	}
	return func() { <-l.pipe.slots }
}

// TestLaneMeetsAnEndedChannel: one that ends while a message waits for room on it. Nothing was sent, so another channel takes it.
func TestLaneMeetsAnEndedChannel(t *testing.T) {
	t.Parallel()
	url, queue := brokertest.URL(t), queue(t)
	l := lane(t, url, "")
	free := full(t, l, queue)
	old := l.pipe
	sent := make(chan error)
	go func() { sent <- l.Publish(within(t, 30*time.Second), publication(queue, "second")) }()
	brokertest.Eventually(t, 10*time.Second, "it waits for room", func() bool { return len(l.turn) == 1 })
	if err := old.ch.Close(); err != nil {
		t.Fatal(err)
	}
	free()
	if err := <-sent; err != nil {
		t.Errorf("%v", err)
	}
	brokertest.WaitReady(t, url, queue, 2)
}

// TestLaneWithoutRoomInAnAlarm: a message that waits for room when the alarm comes is not written into it.
func TestLaneWithoutRoomInAnAlarm(t *testing.T) {
	t.Parallel()
	queue := queue(t)
	l := lane(t, brokertest.URL(t), "")
	free := full(t, l, queue)
	sent := make(chan error)
	go func() { sent <- l.Publish(within(t, 30*time.Second), publication(queue, "second")) }()
	brokertest.Eventually(t, 10*time.Second, "it waits for room", func() bool { return len(l.turn) == 1 })
	behind := make(chan error)
	go func() { behind <- l.Publish(within(t, 30*time.Second), publication(queue, "third")) }()
	select {
	case err := <-behind:
		t.Fatalf("it did not wait for its turn: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	l.publisher.current().session.setBlocked(true)
	if err := <-behind; !errors.Is(err, ErrBlocked) || errors.Is(err, ErrUnknown) {
		t.Errorf("behind it: %v", err)
	}
	free()
	if err := <-sent; !errors.Is(err, ErrBlocked) || errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
}

// TestLaneAndTheEndOfItsConnection: whoever waits is told, and nothing is left running.
func TestLaneAndTheEndOfItsConnection(t *testing.T) {
	t.Parallel()
	queue := queue(t)
	l := lane(t, brokertest.URL(t), "")
	full(t, l, queue)
	p := l.publisher.current()
	l.retire(l.pipe) // never has all its room
	l.turn <- struct{}{}
	sent := make(chan error)
	go func() { sent <- l.Publish(within(t, 30*time.Second), publication(queue, "second")) }()
	select {
	case err := <-sent:
		t.Fatalf("it did not wait for its turn: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	p.session.Kill()
	if err := <-sent; !errors.Is(err, ErrDisconnected) || errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
	l.leave()
	if err := l.ask(p, publication(queue, "third")); !errors.Is(err, ErrDisconnected) {
		t.Errorf("a question to a connection that has ended: %v", err)
	}
	l.Wait()
}
