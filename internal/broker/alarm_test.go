package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/brokertest"
	"sidecar/internal/budget"
	"sidecar/internal/telemetry"
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
		{"idle", alarmWhileIdle},
		{"one connection", alarmOfOneConnection},
		{"many publish on a new connection", alarmLeavesNoCopiesBehind},
		{"stream", streamDuringAnAlarm},
		{"lane tries sizes", laneTriesSizes},
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
	wantErr(t, p.Publish(t.Context(), parked(q, "during")), ErrBlocked)
	if brokertest.Metric(t, r, "sidecar_amqp_blocked") != 1 || brokertest.Metric(t, r, "sidecar_amqp_connected") != 1 {
		t.Error("the metrics do not say blocked and connected")
	}
	calm()
	brokertest.Eventually(t, time.Minute, "not blocked", func() bool { return !p.Blocked() })
	must.Do(t, p.Publish(within(t, time.Minute), parked(q, "after")))
	wantErr(t, <-first) // the alarm was over in time, but
	if p.current().Generation() != 1 || brokertest.Metric(t, r, "sidecar_amqp_blocked") != 0 {
		t.Errorf("generation %d", p.current().Generation())
	}
	brokertest.WaitReady(t, brokertest.URL(t), q, 3)
}

// While the alarm lasts, neither time running out nor many publishers may make new connections, and no message is left
// behind, which the broker would take when the alarm is over.
func alarmLeavesNoCopiesBehind(t *testing.T, node *brokertest.Node) {
	o := options(t)
	o.Timeout = 3 * time.Second // on a busy machine the alarm may be reported late
	q := queue(t)
	calm := node.Alarm()
	defer calm()
	p := publisher(t, o) // connected during the alarm, which has not been reported to it
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			wantErr(t, p.Publish(within(t, time.Minute), parked(q, "x")), ErrBlocked)
		})
	}
	wg.Wait()
	time.Sleep(o.Timeout + 500*time.Millisecond) // longer than a call may take: nothing may happen
	if !p.Blocked() || p.current().Generation() != 1 {
		t.Errorf("blocked %v, generation %d", p.Blocked(), p.current().Generation())
	}
	calm()
	brokertest.Eventually(t, time.Minute, "a publish after the alarm", func() bool {
		return p.Publish(within(t, time.Minute), parked(q, "after")) == nil
	})
	brokertest.WaitReady(t, brokertest.URL(t), q, 1)
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
	wantErr(t, r.Wait(t.Context()), ErrUnknown, ErrBlocked)
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
	memory := budget.New(100).Account(budget.Publish)
	memory.Take(50)
	Give(memory, 20, nil)
	Give(memory, 30, fmt.Errorf("publish: %w", err))
	if held := memory.Held(); held != 30 {
		t.Errorf("%d of 30 bytes of a message that is still being tried are counted", held)
	}
	s.Close()
	<-late.Ended
	brokertest.Eventually(t, time.Minute, "they are given back", func() bool { return memory.Held() == 0 })
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
	wantErr(t, sized(3<<20+1), ErrInvalid, ErrRefused)
	if l.isolated.Load() != 0 {
		t.Error("one that is too large isolates the others")
	}
}

// sharing returns options with an Alarm that logs into the returned log, and with metrics. The process asks at once
// when poll is short.
func sharing(t *testing.T, poll time.Duration) (Options, *prometheus.Registry, *brokertest.Log) {
	t.Helper()
	r, log := prometheus.NewRegistry(), new(brokertest.Log)
	o := options(t)
	o.Registerer, o.Alarm, o.alarmPoll = r, NewAlarm(telemetry.NewLogger(log, "info", "json")), poll
	return o, r, log
}

func active(a *Alarm) bool { since, _ := a.Since(); return !since.IsZero() }

// An idle process finds out that an alarm has begun, keeps its beginning when connections are lost, finds out that it is
// over, and logs each once.
func alarmWhileIdle(t *testing.T, node *brokertest.Node) {
	o, r, log := sharing(t, 50*time.Millisecond)
	p, other := publisher(t, o), publisher(t, o)
	if active(o.Alarm) {
		t.Error("an alarm before it began")
	}
	for round := 1; round <= 2; round++ {
		calm := node.Alarm()
		brokertest.Eventually(t, time.Minute, "both are blocked", func() bool { return p.Blocked() && other.Blocked() })
		since, reason := o.Alarm.Since()
		if since.IsZero() || reason != "low on memory" || brokertest.Metric(t, r, "sidecar_amqp_blocked") != 1 {
			t.Errorf("since %v, reason %q", since, reason)
		}
		for _, p := range []*Publisher{p, other} {
			p.current().Kill()
		}
		brokertest.Eventually(t, time.Minute, "both are blocked again", func() bool { return p.Blocked() && other.Blocked() })
		if again, _ := o.Alarm.Since(); again != since {
			t.Errorf("the alarm began at %v and, after a reconnect, at %v", since, again)
		}
		calm()
		brokertest.Eventually(t, time.Minute, "the alarm is over", func() bool {
			return !active(o.Alarm) && brokertest.Metric(t, r, "sidecar_amqp_blocked") == 0
		})
		for _, msg := range []string{`"msg":"publishing blocked","reason":"low on memory"`, `"msg":"publishing unblocked"`} {
			if n := strings.Count(log.String(), msg); n != round {
				t.Errorf("%s: %d times in round %d", msg, n, round)
			}
		}
	}
}

// What one connection of the process is notified of makes the others ask, and stays when that connection ends.
func alarmOfOneConnection(t *testing.T, node *brokertest.Node) {
	o, _, _ := sharing(t, time.Hour)
	p := publisher(t, o)
	brokertest.Eventually(t, time.Minute, "its first question is answered", func() bool { return !o.Alarm.due(time.Hour) })
	calm := node.Alarm()
	defer calm()
	s := dial(t, o)
	late, ok := errors.AsType[*UntriedError](s.Try(t.Context(), publication(queue(t), "x")))
	if !ok || !errors.Is(late, ErrBlocked) {
		t.Fatal(late)
	}
	s.Close()
	<-late.Ended
	if !active(o.Alarm) {
		t.Error("the alarm is forgotten with the connection")
	}
	brokertest.Eventually(t, time.Minute, "the publisher is blocked", p.Blocked)
	p.current().Kill()
	calm()
	brokertest.Eventually(t, time.Minute, "the alarm is over", func() bool { return !active(o.Alarm) })
}

// TestAlarmIsForgotten: without a connection that could ask, an alarm is not shown for ever, and its end is logged.
func TestAlarmIsForgotten(t *testing.T) {
	t.Parallel()
	o, _, log := sharing(t, time.Hour)
	s := dial(t, o)
	for range 3 {
		s.setBlocked(true, "low on disk")
		s.setBlocked(false, "")
	}
	s.setBlocked(true, "low on disk")
	s.Close()
	if since, reason := o.Alarm.Since(); since.IsZero() || reason != "low on disk" {
		t.Errorf("since %v, %q", since, reason)
	}
	o.Alarm.forget() // too early
	if !active(o.Alarm) {
		t.Error("the alarm is forgotten at once")
	}
	o.Alarm.memory = 10 * time.Millisecond
	s = dial(t, o)
	s.setBlocked(true, "low on disk")
	s.Close()
	brokertest.Eventually(t, time.Minute, "the alarm is forgotten", func() bool { return !active(o.Alarm) })
	for _, msg := range []string{"publishing blocked", "publishing unblocked"} {
		if n := strings.Count(log.String(), msg); n != 4 {
			t.Errorf("%s: %d times", msg, n)
		}
	}
}

// TestAlarmIsAskedForWithoutTheRight: a refused question is not asked again soon.
func TestAlarmIsAskedForWithoutTheRight(t *testing.T) {
	t.Parallel()
	o, _, _ := sharing(t, 20*time.Millisecond)
	var asked atomic.Int32
	user := brokertest.User(t, "secret")
	brokertest.Ctl(t, "set_permissions", user, "", "", "")
	o.Exchange, o.URLs = "missing", urls(brokertest.URLAs(t, user, "secret"))
	o.Connect = func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := dialTCP(ctx, addr)
		return &transactions{c, &asked}, err
	}
	start, p := time.Now(), publisher(t, o)
	brokertest.Eventually(t, time.Minute, "four questions are asked", func() bool { return asked.Load() >= 4 })
	if took := time.Since(start); took < 20*o.alarmPoll {
		t.Errorf("two questions by each exchange, and the second two in %v", took)
	}
	if !p.Connected() || p.current().Generation() != 1 {
		t.Error("the refusal cost the connection")
	}
}

// transactions counts the questions in what is written: each selects a transaction.
type transactions struct {
	net.Conn
	asked *atomic.Int32
}

func (c *transactions) Write(b []byte) (int, error) {
	c.asked.Add(int32(bytes.Count(b, []byte{0, 90, 0, 10}))) // #nosec G115 -- few
	return c.Conn.Write(b)
}
