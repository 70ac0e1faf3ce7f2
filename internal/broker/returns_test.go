package broker

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

// TestReturnsAfterAFreeze: the broker is suspended while many unroutable messages wait, for longer than the client
// library keeps a return that is not collected, which is five seconds. Those under way are unknown, none is confirmed,
// and afterwards each message gets its own answer.
func TestReturnsAfterAFreeze(t *testing.T) {
	t.Parallel()
	queue := queue(t)
	proxy, o := proxied(t)
	l := lane(t, o, "")
	must.Do(t, l.Publish(within(t, time.Minute), publication(queue, "longer than those below"))) // they need no dry run
	proxy.Stall(brokertest.Both)
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var under sync.WaitGroup
	for i := range 256 {
		under.Go(func() {
			err := l.Publish(ctx, publication("missing", fmt.Sprint("under way ", i)))
			if !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrBusy) {
				t.Errorf("during the freeze: %v", err)
			}
		})
	}
	under.Wait()
	time.Sleep(time.Until(began.Add(5500 * time.Millisecond))) // the five seconds are the library's
	proxy.Restore(t)
	for i := range 50 {
		if err := publish(l, "missing"); !errors.Is(err, ErrUnroutable) || errors.Is(err, ErrUnknown) {
			t.Fatalf("%d after the freeze, to no queue: %v", i, err)
		}
		if err := publish(l, queue); err != nil {
			t.Fatalf("%d after the freeze, to a queue: %v", i, err)
		}
	}
}

// TestCutBehindConfirms: a connection that ends right behind a confirm. What was confirmed counts as confirmed.
func TestCutBehindConfirms(t *testing.T) {
	t.Parallel()
	queue := queue(t)
	proxy, o := proxied(t)
	p := publisher(t, o)
	l := p.NewLane("")
	sent := 0
	for name, publish := range map[string]func(context.Context, *message.Publication) error{"alone": p.Publish, "lane": l.Publish} {
		for i := range 2 {
			proxy.CutBehindAcks()
			confirmed := false
			brokertest.Eventually(t, time.Minute, "a confirm", func() bool {
				err := publish(within(t, 5*time.Second), &message.Publication{Kind: message.KindOther, Key: queue, Msg: amqp.Publishing{Body: fmt.Append(nil, i)}})
				if errors.Is(err, ErrUnroutable) || errors.Is(err, ErrNacked) {
					t.Fatalf("%s %d: %v", name, i, err)
				}
				if err == nil || errors.Is(err, ErrUnknown) {
					sent++
				}
				confirmed = err == nil
				return confirmed
			})
		}
	}
	proxy.Restore(t)
	if n := brokertest.Ready(t, brokertest.URL(t), queue); n < 4 || n > sent {
		t.Errorf("%d messages are in the queue, of %d sent and 4 confirmed", n, sent)
	}
}

// fullQueue returns a quorum queue that nacks because of a policy, and the function that removes the policy.
func fullQueue(t *testing.T) (name string, lift func()) {
	t.Helper()
	name = brokertest.Queue(t, brokertest.URL(t), brokertest.Name(t, "full"), amqp.Table{"x-queue-type": "quorum"})
	brokertest.Ctl(t, "set_policy", name, "^"+regexp.QuoteMeta(name)+"$", `{"max-length":1,"overflow":"reject-publish"}`)
	return name, func() { brokertest.Ctl(t, "clear_policy", name) }
}

// TestNackedChannelIsReplaced: when a policy no longer limits a queue that was full, each way to publish is confirmed
// again, also beside confirms for another queue. RabbitMQ 3.10 goes on nacking on the old channels for minutes.
func TestNackedChannelIsReplaced(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.nackedLimit = time.Second
	p := publisher(t, o)
	other := queue(t)
	for how, way := range ways(t, p) {
		t.Run(how, func(t *testing.T) {
			full, lift := fullQueue(t)
			publish := func(queue string) error { return way(within(t, 30*time.Second), publication(queue, "x")) }
			brokertest.Eventually(t, time.Minute, "a nack", func() bool { return errors.Is(publish(full), ErrNacked) })
			lift()
			brokertest.Eventually(t, time.Minute, "a confirm", func() bool {
				must.Do(t, publish(other))
				err := publish(full)
				if err != nil && !errors.Is(err, ErrNacked) {
					t.Error(err)
				}
				return err == nil
			})
		})
	}
}

// TestNackedLane: a queue that stays full costs one channel in a while, and the order of what is under way stays.
func TestNackedLane(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.nackedLimit = 100 * time.Millisecond
	full, _ := fullQueue(t)
	other := queue(t)
	l := lane(t, o, "")
	begin := func(queue string, n int) (wait func() error) {
		return must.Get(l.Begin(within(t, time.Minute), numbered(queue, n)))(t)
	}
	brokertest.Eventually(t, time.Minute, "a nack", func() bool { return errors.Is(publish(l, full), ErrNacked) })
	streams, sent, start := map[*Stream]bool{}, 0, time.Now()
	for ; len(streams) < 4; sent++ {
		nacked, confirmed := begin(full, sent), begin(other, sent)
		streams[l.current()] = true
		done := make(chan error)
		go func() { done <- confirmed() }()
		if err := nacked(); !errors.Is(err, ErrNacked) {
			t.Fatal(err)
		}
		must.Do(t, <-done)
	}
	if took := time.Since(start); took < 2*o.nackedLimit {
		t.Errorf("%d channels in %v", len(streams), took)
	}
	for n := range sent {
		if d := brokertest.Get(t, brokertest.URL(t), other, time.Minute); string(d.Body) != string(numbered(other, n).Msg.Body) {
			t.Fatalf("message %d is %s", n, d.Body)
		}
	}
}

// TestNackedPublisher: an idle channel with an old nack is closed.
func TestNackedPublisher(t *testing.T) {
	t.Parallel()
	p, q := publisher(t, options(t)), queue(t)
	must.Do(t, p.Publish(t.Context(), parked(q, "")))
	c, long := p.idle[0], time.Now().Add(-time.Hour)
	c.nacked.Store(&long)
	must.Do(t, p.Publish(t.Context(), parked(q, "")))
	if len(p.idle) != 1 || p.idle[0] == c {
		t.Errorf("%d idle channels after a message, want another one than before", len(p.idle))
	}
	brokertest.Eventually(t, time.Minute, "the channel is closed", c.closed)
}
