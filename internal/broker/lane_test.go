package broker

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

// lane is a lane on a publisher of its own, which has ended when the test ends.
func lane(t testing.TB, o Options, exchange string) *Lane {
	t.Helper()
	return publisher(t, o).NewLane(exchange)
}

// Publish is Publisher.Publish for a message to the lane's exchange.
func (l *Lane) Publish(ctx context.Context, pub *message.Publication) error {
	wait, err := l.Begin(ctx, pub)
	if err != nil {
		return err
	}
	return wait()
}

// current is the stream of a lane on which no goroutine writes.
func (l *Lane) current() *Stream {
	c := <-l.turn
	l.turn <- c
	return c
}

// publish publishes to the lane, with enough time.
func publish(l *Lane, key string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return l.Publish(ctx, publication(key, "x"))
}

// bound declares a topic exchange with a binding of the queue to every key.
func bound(t testing.TB, exchange, queue string) *amqp.Channel {
	t.Helper()
	ch := brokertest.Channel(t, brokertest.URL(t))
	must.Do(t, ch.ExchangeDeclare(exchange, "topic", false, true, false, false, nil))
	must.Do(t, ch.QueueBind(queue, "#", exchange, false, nil))
	return ch
}

func publication(key, body string) *message.Publication {
	return &message.Publication{Kind: message.KindPublish, Key: key, Msg: amqp.Publishing{Body: []byte(body)}}
}

// TestLaneAfterARefusal: a right that is taken closes the channel under those that are on it. From then on exactly the
// message that is refused is refused, and no other one is left unknown.
func TestLaneAfterARefusal(t *testing.T) {
	t.Parallel()
	user := brokertest.User(t, "secret-password")
	exchange, queue := brokertest.Name(t, "x"), queue(t)
	bound(t, exchange, queue)
	o := options(t)
	o.Username, o.Password = text(user), text("secret-password")
	l := lane(t, o, exchange)
	must.Do(t, publish(l, "good.a"))
	brokertest.Ctl(t, "set_topic_permissions", user, exchange, `^good\..*`, ".*")
	brokertest.Eventually(t, time.Minute, "the right is gone", func() bool { // the channel remembers what it asked for a while
		return errors.Is(publish(l, "bad"), ErrRefused)
	})
	var clients sync.WaitGroup
	for range 5 {
		clients.Go(func() {
			for range 8 {
				wantErr(t, publish(l, "good.b"))          // an innocent
				wantErr(t, publish(l, "bad"), ErrRefused) // the culprit
			}
		})
	}
	clients.Wait()
	l.isolated.Store(0)              // a minute later
	wantErr(t, publish(l, "good.c")) // afterwards
}

// TestLaneOfAMissingExchange: each message is refused, and the first one after it was declared goes.
func TestLaneOfAMissingExchange(t *testing.T) {
	t.Parallel()
	exchange, queue := brokertest.Name(t, "x"), queue(t)
	l := lane(t, options(t), exchange)
	for range 3 {
		wantErr(t, publish(l, "k"), ErrUnroutable)
	}
	ch := bound(t, exchange, queue)
	for range 2 {
		wantErr(t, publish(l, "k"))
		l.isolated.Store(0)
	}
	// Gone again, with messages on the channel: they are unknown, and the next ones are refused.
	must.Do(t, ch.ExchangeDelete(exchange, false, false))
	wantErr(t, publish(l, "k"), ErrUnknown, ErrRefused)
	wantErr(t, publish(l, "k"), ErrUnroutable)
}

// TestLaneBounds: what cannot be sent in time, or at all, is refused before anything is sent.
func TestLaneBounds(t *testing.T) {
	t.Parallel()
	queue := queue(t)
	proxy, o := proxied(t)
	l := lane(t, o, "")
	wantErr(t, l.Publish(within(t, 30*time.Second), publication(strings.Repeat("k", 256), "")), ErrInvalid) // a long key
	c := <-l.turn
	wantErr(t, l.Publish(within(t, 100*time.Millisecond), publication(queue, "x")), ErrBusy) // no turn
	l.turn <- c
	proxy.Stall(brokertest.Down)
	wantErr(t, l.Publish(within(t, 100*time.Millisecond), publication(queue, "x")), ErrBusy) // no answer to the question
	wantErr(t, l.Publish(within(t, 100*time.Millisecond), publication(queue, "x")), ErrBusy) // behind the question
	proxy.Cut()
	proxy.Restore(t)
	brokertest.Eventually(t, 60*time.Second, "published again", func() bool {
		return l.Publish(within(t, 5*time.Second), publication(queue, "x")) == nil
	})
	c = l.current()
	c.tried = 32 << 20
	proxy.Stall(brokertest.Both)
	huge := publication(queue, strings.Repeat("x", c.tried)) // more than the sockets hold
	if err := l.Publish(within(t, time.Second), huge); !errors.Is(err, ErrUnknown) || l.publisher.Connected() {
		t.Errorf("stuck in the write: %v, connected %v", err, l.publisher.Connected())
	}
	proxy.Cut()
	never := NewPublisher(NewDialer(options(t))).NewLane("")
	wantErr(t, never.Publish(within(t, time.Second), publication(queue, "x")), ErrDisconnected) // never connected
}

// full takes all the room of the lane's stream and returns what gives one place back.
func full(t testing.TB, l *Lane, queue string) (free func()) {
	t.Helper()
	must.Do(t, l.Publish(within(t, 30*time.Second), publication(queue, "first")))
	c := l.current()
	for range streamWindow {
		<-c.slots
	}
	return func() { c.slots <- struct{}{} }
}

// TestLaneMeetsAnEndedChannel: one that ends while a message waits for room on it. Nothing was sent, so another channel
// takes it.
func TestLaneMeetsAnEndedChannel(t *testing.T) {
	t.Parallel()
	queue := queue(t)
	l := lane(t, options(t), "")
	free := full(t, l, queue)
	old := l.current()
	sent := make(chan error)
	go func() { sent <- l.Publish(within(t, 30*time.Second), publication(queue, "second")) }()
	brokertest.Eventually(t, time.Minute, "it waits for room", func() bool { return len(l.turn) == 0 })
	old.Close()
	free()
	wantErr(t, <-sent)
	brokertest.WaitReady(t, brokertest.URL(t), queue, 2)
}

// TestLaneWithoutRoomInAnAlarm: a message that waits for room when the alarm comes is not written into it.
func TestLaneWithoutRoomInAnAlarm(t *testing.T) {
	t.Parallel()
	queue := queue(t)
	l := lane(t, options(t), "")
	free := full(t, l, queue)
	sent := make(chan error)
	go func() { sent <- l.Publish(within(t, 30*time.Second), publication(queue, "second")) }()
	brokertest.Eventually(t, time.Minute, "it waits for room", func() bool { return len(l.turn) == 0 })
	behind := make(chan error)
	go func() { behind <- l.Publish(within(t, 30*time.Second), publication(queue, "third")) }()
	select {
	case err := <-behind:
		t.Fatalf("it did not wait for its turn: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	l.publisher.current().setBlocked(true, "")
	wantErr(t, <-behind, ErrBlocked) // behind it
	free()
	wantErr(t, <-sent, ErrBlocked)
}
