//go:build nightly

package test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// moving is a steady stream of messages through sidecars of both topologies.
type moving struct {
	sc     *scene
	all    []*sidecar
	sent   []string // the app fails the message i as often as fails(i) says
	finish func()   // sends no more
}

func fails(i int) int { return []int{0, 1, 0, 2, 0, 3, 0, 1 << 20}[i%8] }

// load sends 50 messages a second until finish. The app wants no retry count that is higher than the failures before.
func (m *moving) load() {
	m.sc.app.otherwise(func(d *delivery) answer {
		var i int
		_, _ = fmt.Sscanf(d.ID, "m%d", &i)
		if n := d.Number("Amqp-Retry-Count"); n >= d.Nth {
			m.sc.t.Errorf("%s has %d retries after %d failures", d.ID, n, d.Nth-1)
		}
		if d.Nth <= fails(i) {
			return status(500)
		}
		return status(200)
	})
	m.finish = steadily(m.sc.t, 200*time.Millisecond, func() {
		for range 10 {
			id := fmt.Sprintf("m%d", len(m.sent))
			m.sent = append(m.sent, id)
			m.sc.send(id)
		}
	})
}

// roll replaces the running sidecars by two of that topology, one after the other; each starts before an old one stops.
func (m *moving) roll(topology string) {
	m.sc.t.Helper()
	old := m.all[max(len(m.all)-2, 0):]
	for i := range 2 {
		m.all = append(m.all, m.sc.with("TOPOLOGY", topology).run())
		if i < len(old) {
			old[i].stop()
		}
	}
}

// attempts waits for so many requests more.
func (m *moving) attempts(n int) {
	m.sc.t.Helper()
	before := m.sc.app.total()
	eventually(m.sc.t, "more attempts", func() bool { return m.sc.app.total() >= before+n })
}

// check waits until every message has ended, which it must once.
func (m *moving) check() {
	t := m.sc.t
	t.Helper()
	m.finish()
	want := map[string][]string{}
	for i, id := range m.sent {
		want[id] = []string{"ack"}
		if fails(i) > 3 {
			want[id] = []string{"park"}
		}
	}
	ended := func() map[string][]string { return (&rolling{all: m.all}).outcomes() }
	brokertest.Eventually(t, 2*patience, "all messages are accepted or parked", func() bool { return len(ended()) == len(want) })
	for _, s := range m.all[len(m.all)-2:] {
		s.stop()
	}
	for id, got := range ended() {
		if !slices.Equal(got, want[id]) {
			t.Errorf("%s ended as %v, want %v", id, got, want[id])
		}
	}
	for _, d := range m.sc.take(m.sc.dlq(), max(m.sc.ready(m.sc.dlq()), 0)) {
		if asInt(d.Headers["x-final-retry-count"]) != 3 || len(m.sc.app.Seen(d.MessageId)) < 4 {
			t.Errorf("%s is parked with %v", d.MessageId, d.Headers)
		}
	}
	if left := m.sc.ready(m.sc.queue()); left != 0 {
		t.Errorf("%d messages are left in the queue", left)
	}
}

// TestFanoutToNativeAndBack moves a queue under load, two replicas at a time, while messages wait in the retry queue, and
// moves it back. No connection is cut, so each message ends once.
func TestFanoutToNativeAndBack(t *testing.T) {
	t.Parallel()
	brokertest.Delaying(t)
	sc := newScene(t).with("QUEUE_TYPE", "quorum", "RETRY_DELAY", "1s", "MAX_RETRIES", "3")
	m := &moving{sc: sc}
	m.roll("fanout")
	m.load()
	m.attempts(100)
	wantStep(t, 0, "next: run begin", "check", sc.queue())
	wantStep(t, 0, `{"delayed-retry-type":"failed","delayed-retry-min":1000,"delayed-retry-max":1000}`, "begin", sc.queue())
	m.roll("native")
	brokertest.Eventually(t, 2*patience, "the retry exchange is deleted", func() bool {
		code, said := step(t, "finish", sc.queue())
		t.Log(said)
		return code == 0
	})
	if sc.ready(sc.retryQueue()) != -1 {
		t.Error("the retry queue is still there")
	}
	m.attempts(100)
	m.roll("fanout")
	wantStep(t, 0, "is removed", "back", sc.queue())
	m.attempts(100)
	m.check()
}
