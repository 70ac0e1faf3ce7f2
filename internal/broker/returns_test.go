package broker

import (
	"context"
	"errors"
	"fmt"
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
