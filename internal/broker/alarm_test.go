package broker

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// TestAlarmsAndLimits is all that needs a node of its own, in one turn.
func TestAlarmsAndLimits(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *brokertest.Node)
	}{
		{"publish", publishDuringAnAlarm},
		{"many publish on a new connection", alarmLeavesNoCopiesBehind},
		{"lane", laneDuringAnAlarm},
		{"stream", streamDuringAnAlarm},
		{"lane tries sizes", laneTriesSizes},
		{"stream tries sizes", streamTriesSizes},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, node) })
	}
}

func publishDuringAnAlarm(t *testing.T, node *brokertest.Node) {
	r := prometheus.NewRegistry()
	o := options(t)
	o.Registerer = r
	p, q := publisher(t, o), queue(t)
	must.Do(t, p.Publish(t.Context(), parked(q, "before")))
	calm := node.Alarm()
	defer calm()
	// A connection learns of the alarm by its first publish, of which the broker reads the beginning.
	first := make(chan error, 1)
	go func() { first <- p.Publish(within(t, time.Minute), parked(q, "first during")) }()
	brokertest.Eventually(t, time.Minute, "blocked", p.Blocked)
	if err := p.Publish(t.Context(), parked(q, "during")); !errors.Is(err, ErrBlocked) {
		t.Errorf("got %v", err)
	}
	if value(t, r, "sidecar_amqp_blocked") != 1 || value(t, r, "sidecar_amqp_connected") != 1 {
		t.Error("the metrics do not say blocked and connected")
	}
	calm()
	brokertest.Eventually(t, time.Minute, "not blocked", func() bool { return !p.Blocked() })
	must.Do(t, p.Publish(within(t, time.Minute), parked(q, "after")))
	if err := <-first; err != nil {
		t.Errorf("the alarm was over in time, but: %v", err)
	}
	if p.current().Generation() != 1 || value(t, r, "sidecar_amqp_blocked") != 0 {
		t.Errorf("generation %d", p.current().Generation())
	}
	brokertest.WaitReady(t, brokertest.URL(t), q, 3)
}

// While the alarm lasts, neither time running out nor many publishers may make new connections, and no message is left
// behind, which the broker would take when the alarm is over.
func alarmLeavesNoCopiesBehind(t *testing.T, node *brokertest.Node) {
	o := options(t)
	o.Timeout = 500 * time.Millisecond
	q := queue(t)
	calm := node.Alarm()
	defer calm()
	p := publisher(t, o) // connected during the alarm, which has not been reported to it
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if err := p.Publish(within(t, time.Second), parked(q, "x")); !errors.Is(err, ErrBlocked) || errors.Is(err, ErrUnknown) {
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	time.Sleep(2 * o.Timeout) // longer than a call may take: nothing may happen
	if !p.Blocked() || p.current().Generation() != 1 {
		t.Errorf("blocked %v, generation %d", p.Blocked(), p.current().Generation())
	}
	calm()
	brokertest.Eventually(t, time.Minute, "a publish after the alarm", func() bool {
		return p.Publish(within(t, time.Minute), parked(q, "after")) == nil
	})
	brokertest.WaitReady(t, brokertest.URL(t), q, 1)
}

// A connection to which the alarm was not reported learns of it by a question. It stays, it is good again when the
// alarm is over, and nothing that was refused is published.
func laneDuringAnAlarm(t *testing.T, node *brokertest.Node) {
	queue := queue(t)
	l := lane(t, options(t), "")
	calm := node.Alarm()
	defer calm()
	session := l.publisher.current()
	for range 3 {
		if err := publish(l, queue); !errors.Is(err, ErrBlocked) || errors.Is(err, ErrUnknown) {
			t.Errorf("%v", err)
		}
	}
	calm()
	brokertest.Eventually(t, time.Minute, "the alarm is over", func() bool {
		return l.Publish(within(t, 5*time.Second), publication(queue, "after")) == nil
	})
	wantBodies(t, queue, "after")
	if l.publisher.current() != session {
		t.Error("the connection was given up")
	}
}

// What the broker does not read is not waited for until the alarm is over, nor is a question.
func streamDuringAnAlarm(t *testing.T, node *brokertest.Node) {
	queue := queue(t)
	p, fresh := publisher(t, options(t)), publisher(t, options(t))
	asking, c, other := newStream(t, p), newStream(t, p), newStream(t, fresh)
	confirmed(t, send(t, c, numbered(queue, 0)), false, 0)
	defer node.Alarm()()
	r := &Receipt{}
	sent := func(c *Stream, n int) (err error) {
		r, err = c.Send(t.Context(), numbered(queue, n))
		return err
	}
	must.Do(t, sent(c, 1))
	if err := r.Wait(t.Context()); !errors.Is(err, ErrUnknown) || !errors.Is(err, ErrBlocked) {
		t.Errorf("%v", err)
	}
	for i, c := range []*Stream{c, asking, other} { // the last one is on a connection to which the alarm was not reported
		if err := sent(c, 2); !errors.Is(err, ErrBlocked) || errors.Is(err, ErrUnknown) {
			t.Errorf("stream %d: %v", i, err)
		}
	}
	s := dial(t, options(t))
	err := s.Try(t.Context(), numbered(queue, 3))
	late, ok := errors.AsType[*UntriedError](err)
	if !ok || !errors.Is(err, ErrBlocked) {
		t.Fatalf("the dry run: %v", err)
	}
	s.Close()
	<-late.Ended
}

// A body that is larger than all before it is tried first.
func laneTriesSizes(t *testing.T, node *brokertest.Node) {
	node.MaxSize(3 << 20)
	queue := queue(t)
	l := lane(t, options(t), "")
	sized := func(n int) error {
		return l.Publish(within(t, 30*time.Second), publication(queue, strings.Repeat("x", n)))
	}
	for _, c := range []struct{ size, tried int }{
		{0, 0}, {1, 1}, {100 << 10, 100 << 10}, {2, 100 << 10}, {3 << 20, 3 << 20}, {1, 3 << 20},
	} {
		if err := sized(c.size); err != nil || l.current().tried != c.tried {
			t.Errorf("%d bytes: %v, %d were tried", c.size, err, l.current().tried)
		}
	}
	if err := sized(3<<20 + 1); !errors.Is(err, ErrInvalid) || !errors.Is(err, ErrRefused) {
		t.Errorf("%v", err)
	}
	if l.isolated.Load() != 0 {
		t.Error("one that is too large isolates the others")
	}
}

// A message that the broker does not take is reported, and costs no other one its confirm.
func streamTriesSizes(t *testing.T, node *brokertest.Node) {
	node.MaxSize(5000)
	queue := queue(t)
	c := newStream(t, publisher(t, options(t)))
	var receipts []*Receipt
	for i := range 12 {
		msg := publication(queue, strings.Repeat("x", 10+i*500))
		if i <= 9 {
			receipts = append(receipts, send(t, c, msg))
		} else if _, err := c.Send(t.Context(), msg); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "max size 5000") {
			t.Errorf("%d: %v", i, err)
		}
	}
	for i, r := range receipts {
		confirmed(t, r, false, i)
	}
	brokertest.WaitReady(t, brokertest.URL(t), queue, len(receipts))
}
