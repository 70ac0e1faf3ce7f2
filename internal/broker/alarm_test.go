package broker

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/brokertest"
)

func TestPublishWhileTheBrokerIsBlocked(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	url := brokertest.URL(t)
	r := prometheus.NewRegistry()
	o := options(url)
	o.Registerer = r
	p := publisher(t, o)
	q := queue(t)
	if err := p.Publish(t.Context(), parked(q, "before")); err != nil {
		t.Fatal(err)
	}
	calm := node.Alarm()
	// A connection learns of the alarm by its first publish, of which the broker reads the beginning.
	first := make(chan error, 1)
	go func() { first <- p.Publish(within(t, time.Minute), parked(q, "first during")) }()
	brokertest.Eventually(t, 30*time.Second, "blocked", p.Blocked)
	if err := p.Publish(t.Context(), parked(q, "during")); !errors.Is(err, ErrBlocked) {
		t.Errorf("got %v", err)
	}
	if value(t, r, "sidecar_amqp_blocked") != 1 || value(t, r, "sidecar_amqp_connected") != 1 {
		t.Error("the metrics do not say blocked and connected")
	}
	calm()
	brokertest.Eventually(t, 30*time.Second, "not blocked", func() bool { return !p.Blocked() })
	if err := p.Publish(within(t, time.Minute), parked(q, "after")); err != nil {
		t.Error(err)
	}
	if err := <-first; err != nil {
		t.Errorf("the alarm was over in time, but: %v", err)
	}
	if p.current().session.Generation() != 1 || value(t, r, "sidecar_amqp_blocked") != 0 {
		t.Errorf("generation %d", p.current().session.Generation())
	}
	brokertest.WaitReady(t, url, q, 3)
}

// While the alarm lasts, neither time running out nor many publishers may make new connections: on each the broker would
// take one more copy when the alarm is over.
func TestAlarmLeavesNoCopiesBehind(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	url := brokertest.URL(t)
	o := options(url)
	o.Timeout = time.Second
	q := queue(t)
	calm := node.Alarm()
	p := publisher(t, o) // connected during the alarm: it does not know yet
	var wg sync.WaitGroup
	var unknown atomic.Int64
	for range 100 {
		wg.Go(func() {
			switch err := p.Publish(within(t, 2*time.Second), parked(q, "x")); {
			case errors.Is(err, ErrUnknown):
				unknown.Add(1)
			case !errors.Is(err, ErrBlocked):
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	time.Sleep(3 * time.Second) // longer than a call may take
	if !p.Blocked() || p.current().session.Generation() != 1 || unknown.Load() != 1 {
		t.Errorf("blocked %v, generation %d, %d unknown", p.Blocked(), p.current().session.Generation(), unknown.Load())
	}
	calm()
	brokertest.Eventually(t, 30*time.Second, "a publish after the alarm", func() bool {
		return p.Publish(within(t, time.Minute), parked(q, "after")) == nil
	})
	brokertest.WaitReady(t, url, q, 2)
}
