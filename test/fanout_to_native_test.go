//go:build nightly

package test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
)

const maxRetries = 3

// moving is a steady stream of messages through sidecars of both topologies. The path says which one has POSTed.
type moving struct {
	sc     *scene
	all    []*sidecar
	finish func() // sends no more

	mu   sync.Mutex
	sent map[string]*journey
}

// journey is what the app saw of a message.
type journey struct {
	fails    int // how often the app fails it
	early    bool
	attempts int // answered with a failure
	written  int // of these, those that fanout has written into the message
	done     bool
	under    int // requests at this moment
	wrong    []string
}

func newMoving(sc *scene) *moving {
	m := &moving{sc: sc, sent: map[string]*journey{}}
	sc.app.Otherwise(m.receive)
	return m
}

// load sends rate messages a second until finish.
func (m *moving) load(rate int) {
	stop := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		for n := 0; ; n += 10 {
			var list []amqp.Publishing
			m.mu.Lock()
			for i := n; i < n+10; i++ {
				id := fmt.Sprintf("m%d", i)
				m.sent[id] = &journey{fails: []int{0, 1, 0, 2, 0, 3, 0, 1 << 20}[i%8], early: i%5 == 0}
				list = append(list, message(id))
			}
			m.mu.Unlock()
			m.sc.publish(m.sc.exchange(), "order.created", list...)
			select {
			case <-stop:
				return
			case <-time.After(time.Second * 10 / time.Duration(rate)):
			}
		}
	})
	m.finish = sync.OnceFunc(func() { close(stop); sending.Wait() })
	m.sc.t.Cleanup(m.finish)
}

// receive holds each request for a moment: a second consumer would overlap.
func (m *moving) receive(r *apptest.Request) apptest.Reply {
	status, end := m.attempt(r)
	return func(c *apptest.Conn) bool {
		time.Sleep(5 * time.Millisecond)
		end()
		return c.Send(apptest.Status(status))
	}
}

func (m *moving) attempt(r *apptest.Request) (status int, end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j, retries := m.sent[r.ID], r.Number("Amqp-Retry-Count")
	if j == nil {
		j = &journey{wrong: []string{"was not sent"}}
		m.sent[r.ID] = j
	}
	note := func(bad bool, format string, args ...any) {
		if bad {
			j.wrong = append(j.wrong, fmt.Sprintf(format, args...))
		}
	}
	note(j.done, "came again after it was accepted")
	note(j.under > 0, "is handled twice at the same time")
	note(retries > j.attempts, "has %d retries after %d failures", retries, j.attempts)
	note(retries < j.written, "has %d retries, and fanout has counted %d", retries, j.written)
	j.under++
	switch {
	case j.early:
		status, j.early = http.StatusTooEarly, false
	case j.attempts < j.fails:
		status = http.StatusInternalServerError
	default:
		status = http.StatusOK
	}
	return status, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		j.under--
		j.done = status == http.StatusOK
		if status == http.StatusInternalServerError {
			j.attempts++
			if r.Target == "/fanout" {
				j.written = retries + 1
			}
		}
	}
}

// roll replaces the running sidecars by two of that topology, one after the other; each starts before an old one stops.
func (m *moving) roll(topology string) {
	m.sc.t.Helper()
	old := m.all[max(len(m.all)-2, 0):]
	for i := range 2 {
		s := m.sc.with("TOPOLOGY", topology, "APP_URL", m.sc.app.url()+topology).run()
		m.all = append(m.all, s)
		if i < len(old) {
			old[i].stop()
		}
	}
}

// retried waits until so many messages more have failed.
func (m *moving) retried(n int) {
	m.sc.t.Helper()
	count := func() (sum int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, j := range m.sent {
			sum += j.attempts
		}
		return sum
	}
	before := count()
	eventually(m.sc.t, "more attempts", func() bool { return count() >= before+n })
}

// check waits until every message has ended, and judges all of it.
func (m *moving) check() {
	t := m.sc.t
	t.Helper()
	m.finish()
	never := 0
	for _, j := range m.sent {
		if j.fails > maxRetries {
			never++
		}
	}
	brokertest.Eventually(t, 2*patience, "all messages are accepted or parked", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, j := range m.sent {
			if j.fails <= maxRetries && !j.done {
				return false
			}
		}
		return true
	})
	parked := map[string]int{}
	for _, d := range m.sc.take(m.sc.dlq(), never) {
		parked[d.MessageId]++
		if asInt(d.Headers["x-final-retry-count"]) != maxRetries {
			t.Errorf("%s is parked with %v", d.MessageId, d.Headers)
		}
	}
	for _, s := range m.all[len(m.all)-2:] {
		s.stop()
	}
	ended := (&rolling{all: m.all}).outcomes()
	for id, j := range m.sent {
		want := []string{"ack"}
		if j.fails > maxRetries {
			want = []string{"park"}
		}
		if !slices.Equal(ended[id], want) {
			j.wrong = append(j.wrong, fmt.Sprintf("ended as %v", ended[id]))
		}
		if (want[0] == "park") != (parked[id] == 1) || want[0] == "park" && j.attempts <= maxRetries {
			j.wrong = append(j.wrong, fmt.Sprintf("parked %d times after %d attempts", parked[id], j.attempts))
		}
		if len(j.wrong) > 0 {
			t.Errorf("%s: %s", id, strings.Join(j.wrong, "; "))
		}
	}
	for _, s := range m.all {
		if s.log.mentions("topology does not fit") || s.log.mentions("topology fits") {
			t.Errorf("something does not fit:\n%s", s.log.tail(40))
		}
	}
	if left := m.sc.ready(m.sc.queue()); left != 0 {
		t.Errorf("%d messages are left in the queue", left)
	}
	t.Logf("%d messages, %d parked", len(m.sent), never)
}

// TestFanoutToNativeAndBack moves a queue under load, two replicas at a time, while messages wait in the retry queue, and
// moves it back. No connection is cut, so each message ends once.
func TestFanoutToNativeAndBack(t *testing.T) {
	t.Parallel()
	brokertest.Delaying(t)
	sc := newScene(t).with("QUEUE_TYPE", "quorum", "RETRY_DELAY", "1s", "MAX_RETRIES", fmt.Sprint(maxRetries),
		"REQUEUE_DELAY_MIN", "250ms", "REQUEUE_DELAY_MAX", "300ms")
	m := newMoving(sc)
	m.roll("fanout")
	m.load(50)
	m.retried(20)

	wantStep(t, 0, "next: run begin", "check", sc.queue())
	wantStep(t, 0, `{"delayed-retry-type":"failed","delayed-retry-min":1000,"delayed-retry-max":1000}`, "begin", sc.queue())
	m.retried(20)
	m.roll("native")
	brokertest.Eventually(t, 2*patience, "the retry exchange is deleted", func() bool {
		code, said := step(t, "finish", sc.queue())
		t.Log(said)
		return code == 0
	})
	if sc.ready(sc.retryQueue()) != -1 {
		t.Error("the retry queue is still there")
	}
	m.retried(20)

	m.roll("fanout")
	wantStep(t, 0, "is removed", "back", sc.queue())
	m.retried(20)
	m.check()
}
