package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
	"sidecar/internal/brokertest"
	"sidecar/internal/budget"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

func TestSessionConsumesAndSettles(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	q := queue(t)
	brokertest.Send(t, url, q, "ack", "requeue", "reject", "ack too")
	s := dial(t, options(t))
	if s.Generation() != 1 || s.FrameMax() != amqpwire.FrameMax || s.Blocked() || s.Err() != nil {
		t.Errorf("a new session: generation %d, frame %d, blocked %v, %v", s.Generation(), s.FrameMax(), s.Blocked(), s.Err())
	}
	sub, deliveries := subscribe(t, s, q, 10)
	if d := next(t, deliveries); sub.Ack(d.DeliveryTag, false) != nil {
		t.Error("ack failed")
	}
	requeued := next(t, deliveries)
	if d := next(t, deliveries); sub.Reject(d.DeliveryTag) != nil {
		t.Error("reject failed")
	}
	must.Do(t, sub.Requeue(requeued.DeliveryTag))
	last := next(t, deliveries)
	again := next(t, deliveries)
	if string(again.Body) != "requeue" || !again.Redelivered {
		t.Errorf("got %q, redelivered %v", again.Body, again.Redelivered)
	}
	must.Do(t, sub.Ack(max(last.DeliveryTag, again.DeliveryTag), true))
	brokertest.Eventually(t, time.Minute, "an empty queue", func() bool { return brokertest.Ready(t, url, q) == 0 })
	s.Close()
	<-sub.Done()
	if brokertest.WaitReady(t, url, q, 0); !errors.Is(sub.Err(), ErrDisconnected) {
		t.Errorf("after close: %v", sub.Err())
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	s := dial(t, options(t))
	if is := s.conn.Properties["version"]; s.Major() < 3 || is != brokertest.Version(t) {
		t.Errorf("major %d of %v", s.Major(), is)
	}
	for version, want := range map[string]bool{
		"3.13.7": false, "4.2.9": false, "4.3.0": true, "4.10": true, "5": true, "4": false, "": false, "x.9": false, "4.x": false,
	} {
		s.conn.Properties["version"] = version
		if got := s.AtLeast(4, 3); got != want {
			t.Errorf("%q: at least 4.3: %v", version, got)
		}
	}
	delete(s.conn.Properties, "version")
	if s.Major() != 0 || s.AtLeast(4, 3) {
		t.Error("a version without one")
	}
}

// TestConsumerTimeout: only RabbitMQ 4.3 is asked, and takes the consumer away in time. A classic queue refuses that.
func TestConsumerTimeout(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	s := dial(t, options(t))
	quorum := brokertest.Queue(t, url, brokertest.Name(t, "quorum"), amqp.Table{"x-queue-type": "quorum"})
	brokertest.Send(t, url, quorum, "held")
	sub := must.Get(s.Subscribe(t.Context(), quorum))(t)
	sub.Timeout = 100 * time.Millisecond
	if d := next(t, start(t, sub, 10)); string(d.Body) != "held" {
		t.Errorf("got %q", d.Body)
	}
	classic := must.Get(s.Subscribe(t.Context(), queue(t)))(t)
	classic.Timeout = time.Hour
	_, err := classic.Consume(t.Context(), 10)
	if !s.AtLeast(4, 3) {
		if err != nil || sub.Err() != nil {
			t.Errorf("a broker without it was asked: %v, %v", err, sub.Err())
		}
		return
	}
	wantCode(t, err, amqp.PreconditionFailed) // a classic queue
	ended(t, sub.Done(), "the subscription")
	wantErr(t, sub.Err(), ErrCancelled) // after its time
}

// The reason for own sessions. The client library's recovery would open the same channel again, where the late ack of A
// settles whatever has A's number by then.
func TestLateAckOfAnOldSessionSettlesNothing(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	proxy := brokertest.NewProxy(t, url)
	q := queue(t)
	brokertest.Send(t, url, q, "A", "B", "C")
	d := NewDialer(options(t, proxy.URL(t, url)))
	old := must.Get(d.Dial(t.Context()))(t)
	sub, deliveries := subscribe(t, old, q, 1)
	a := next(t, deliveries)

	proxy.Cut()
	ended(t, old.Done(), "the cut session")
	fresh := must.Get(d.Dial(t.Context()))(t)
	defer fresh.Close()
	if fresh.Generation() <= old.Generation() {
		t.Errorf("generation %d after %d", fresh.Generation(), old.Generation())
	}
	freshSub, freshDeliveries := subscribe(t, fresh, q, 1)
	held := next(t, freshDeliveries)
	if held.DeliveryTag != a.DeliveryTag {
		t.Fatalf("the tags differ, %d and %d: this proves nothing", held.DeliveryTag, a.DeliveryTag)
	}

	for _, settle := range []func() error{
		func() error { return sub.Ack(a.DeliveryTag, false) },
		func() error { return sub.Ack(a.DeliveryTag, true) },
		func() error { return sub.Requeue(a.DeliveryTag) },
		func() error { return sub.Reject(a.DeliveryTag) },
		func() error { return a.Ack(false) },
	} {
		if err := settle(); err == nil {
			t.Error("a late settlement succeeded")
		}
	}
	wantErr(t, sub.Ack(a.DeliveryTag, false), ErrDisconnected) // a late ack
	wantErr(t, freshSub.Err())                                 // the new session suffered
	fresh.Close()
	brokertest.WaitReady(t, url, q, 3)
}

func TestCallObeysAnEarlierDeadlineAndIgnoresCancellation(t *testing.T) {
	t.Parallel()
	proxy, o := proxied(t)
	o.Timeout = time.Hour
	s := dial(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantErr(t, s.Do(ctx, "nothing", func() error { t.Error("called"); return nil }), context.Canceled) // a call after the end of its context
	ctx, cancel = context.WithCancel(t.Context())
	if err := s.Do(ctx, "something", func() error { cancel(); return nil }); err != nil || s.Err() != nil {
		t.Errorf("cancelled during the call: %v, session %v", err, s.Err())
	}
	proxy.Stall(brokertest.Both)
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	wantCause(t, errOf(s.Channel(ctx)), causeTimeout, "")
}

func TestDoubleAckEndsTheSubscription(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	q := queue(t)
	brokertest.Send(t, url, q, "x")
	s := dial(t, options(t))
	sub, deliveries := subscribe(t, s, q, 10)
	d := next(t, deliveries)
	for range 2 {
		must.Do(t, sub.Ack(d.DeliveryTag, false))
	}
	ended(t, sub.Done(), "the subscription")
	wantCode(t, sub.Err(), 406)
	wantCause(t, sub.Err(), causeChannel, "")
	wantErr(t, sub.Ack(d.DeliveryTag, false), ErrRefused) // an ack afterwards
	if s.Err() != nil {
		t.Errorf("the connection went with the channel: %v", s.Err())
	}
}

func TestBrokerClosesTheConnection(t *testing.T) {
	t.Parallel()
	user := brokertest.User(t, "secret")
	o := options(t)
	o.Username, o.Password = text(user), text("secret")
	s := dial(t, o)
	brokertest.Eventually(t, time.Minute, "the end of the session", func() bool { // the broker lists a connection some time after it was made
		brokertest.Ctl(t, "close_all_user_connections", user, "asked to")
		return s.Err() != nil
	})
	wantCause(t, s.Err(), causeBroker, "asked to")
}

// Every way to end a session, many times, at every moment: nothing may hang or stay behind (see TestMain).
func TestConnectCutClose(t *testing.T) {
	t.Parallel()
	proxy, o := proxied(t)
	d := NewDialer(o)
	q := queue(t)
	for i := range 12 {
		s, err := d.Dial(t.Context())
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		sub, err := s.Subscribe(t.Context(), q)
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if i%2 == 0 {
			if _, err := sub.Consume(t.Context(), 5); err != nil {
				t.Fatalf("round %d: %v", i, err)
			}
		}
		switch i % 4 {
		case 0:
			go proxy.Cut()
		case 1:
			go s.Kill()
		case 2:
			proxy.Cut()
		}
		s.Close()
		ended(t, s.Done(), "the session")
		ended(t, sub.Done(), "the subscription")
	}
}

// TestCallsAreAnsweredLateWithoutMemory: the answer of a call comes after a delivery that waits for memory. That does
// not end the session.
func TestCallsAreAnsweredLateWithoutMemory(t *testing.T) {
	t.Parallel()
	queue := queue(t)
	o := options(t)
	o.Memory, o.MemoryPatience = budget.New(1<<20).Account(budget.Deliveries), time.Hour
	body := make([]byte, 400<<10)
	p := publisher(t, options(t))
	for range 3 {
		must.Do(t, p.Publish(within(t, 30*time.Second), &message.Publication{Kind: message.KindOther, Key: queue, Msg: amqp.Publishing{Body: body}}))
	}
	s := dial(t, o)
	sub := must.Get(s.Subscribe(t.Context(), queue))(t)
	q := must.Get(sub.Consume(t.Context(), 10))(t)
	take := func() (batch []*Delivery) {
		t.Helper()
		brokertest.Eventually(t, time.Minute, "deliveries", func() bool {
			batch, _ = q.Take(nil)
			return len(batch) > 0
		})
		return batch
	}
	first := take()
	brokertest.Eventually(t, time.Minute, "reading waits", func() bool { return s.wire.Waited(time.Now()) })
	s.timeout = 200 * time.Millisecond
	stopped := make(chan error, 1)
	go func() { stopped <- q.Stop(t.Context()) }()
	select {
	case err := <-stopped:
		t.Fatalf("answered before it could be: %v", err)
	case <-s.Done():
		t.Fatalf("the session ended: %v", s.Err())
	case <-time.After(3 * s.timeout): // a few times the limit of a call
	}
	for _, d := range first {
		d.Free()
	}
	for range 2 {
		for _, d := range take() {
			d.Free()
		}
	}
	wantErr(t, <-stopped)
}
