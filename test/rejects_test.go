package test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// rejectsAll is how many log lines say that consumption stops, or goes on, because the app refuses every message.
func (s *sidecar) rejectsAll(msg string) int {
	return len(s.log.find(func(e entry) bool { return e.text("msg") == msg && e.text("reason") == "app_rejects_all" }))
}

// TestAppRejectsAll: a wrong path, with 404 for all, must not send a backlog through its retries: a few messages are
// tried, each another one, none is parked, and after the repair everything is handled.
func TestAppRejectsAll(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			const backlog = 2000
			sc := newScene(t).with("MAX_RETRIES", "1", "QUEUE_TYPE", queueType)
			var repaired atomic.Bool
			sc.app.otherwise(func(*delivery) answer {
				if repaired.Load() {
					return status(200)
				}
				return status(404)
			})
			s := sc.run()
			sc.send(numbered("m", backlog)...)
			eventually(t, "a pause", func() bool { return s.metric("sidecar_paused", `reason="app_rejects_all"`) == 1 })
			if _, body := s.get(s.control, "/status"); !strings.Contains(body, sc.app.url()+" answers every message with status 404") {
				t.Errorf("/status does not name the URL and the status: %s", body)
			}
			// The fault itself, three tries long. Without the pause hundreds of messages are parked meanwhile.
			stays(t, 5*time.Second, "nothing parked", func() bool { return sc.ready(sc.dlq()) == 0 })
			for _, d := range sc.app.all() {
				if d.number("Amqp-Delivery-Attempt") != 1 {
					t.Errorf("message %s was tried again while others waited", d.value("Amqp-Message-Id"))
				}
			}
			if n := sc.app.total(); n > 30 {
				t.Errorf("%d messages were tried while the path was wrong", n)
			}
			repaired.Store(true)
			brokertest.Eventually(t, 90*time.Second, "everything acked", func() bool {
				return s.metric("sidecar_messages_settled_total", `outcome="ack"`) == backlog
			})
			sc.settledAll(s, 0)
			if p, r := s.rejectsAll("paused"), s.rejectsAll("resumed"); p != 1 || r != 1 {
				t.Errorf("%d lines say paused and %d resumed, want one each", p, r)
			}
		})
	}
}

// TestAppRefusesEverything: redirects of a wrong URL, each with another Location, and a 400 since the start.
func TestAppRefusesEverything(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		statuses []int
		env      []string
		detail   string
	}{
		"https":     {[]int{301}, nil, " answers every message with status 301 and Location https://app.example/events\""},
		"login":     {[]int{302, 303}, []string{"CONCURRENCY", "3"}, " and Location https://app.example/events\""},
		"path":      {[]int{307, 308}, []string{"ROUTES", "#=/routed"}, "/routed answers every message with status 30"},
		"host":      {[]int{400}, nil, " answers every message with status 400\""},
		"batches":   {[]int{302}, []string{"BATCH_SIZE", "20", "BATCH_WAIT", "100ms"}, " answers every message with status 302"},
		"mixed":     {[]int{400, 404, 303, 422, 401}, nil, " refuses every message, the last with status "},
		"in a line": {[]int{422}, []string{"CONCURRENCY", "1"}, " answers every message with status 422"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const backlog = 500
			sc := newScene(t).with(append(tc.env, "MAX_RETRIES", "0")...).seed()
			sc.send(numbered("m", backlog)...)
			var n atomic.Int64
			sc.app.otherwise(func(*delivery) answer {
				i := int(n.Add(1))
				if name == "login" && i <= 5 {
					return status(204) // the session ends after that
				}
				a := status(tc.statuses[i%len(tc.statuses)])
				if a.status < 400 {
					a.header = map[string]string{"Location": fmt.Sprintf("https://me:secret@app.example/events;s=%d?next=/msg/%d#x", i, i)}
				}
				return a
			})
			s := sc.run()
			eventually(t, "a pause", func() bool { return s.metric("sidecar_paused", `reason="app_rejects_all"`) == 1 })
			_, body := s.get(s.control, "/status")
			if !strings.Contains(body, tc.detail) || strings.Contains(body, "next=") || strings.Contains(body, "secret") {
				t.Errorf("/status: %s", body)
			}
			stays(t, 3*time.Second, "few parked", func() bool { return sc.ready(sc.dlq()) < 50 })
			if log := s.log.String(); s.rejectsAll("paused") != 1 || strings.Contains(log, "next=") || strings.Contains(log, "secret") {
				t.Errorf("log: %s", log)
			}
		})
	}
}

// TestAppThatRejectsSome is never held: not one that accepts others, and not one whose rejections park at once.
func TestAppThatRejectsSome(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		env      []string
		rejected int // of 200
	}{
		"nine of ten":            {[]string{"MAX_RETRIES", "1"}, 180},
		"all, by PARK_ON_STATUS": {[]string{"PARK_ON_STATUS", "404"}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with(tc.env...).with("CONCURRENCY", "1")
			sc.app.otherwise(func(d *delivery) answer {
				if strings.HasPrefix(d.value("Amqp-Message-Id"), "good") {
					return status(200)
				}
				return status(404)
			})
			s := sc.run()
			good, bad := numbered("good", 200-tc.rejected), numbered("bad", tc.rejected)
			for i, id := range bad {
				if i%9 == 0 && i/9 < len(good) {
					sc.send(good[i/9])
				}
				sc.send(id)
			}
			s.awaitAcked(good...)
			eventually(t, "every rejected message parked", func() bool { return sc.ready(sc.dlq()) == tc.rejected })
			sc.settledAll(s, tc.rejected)
			if n := s.rejectsAll("paused"); n != 0 {
				t.Errorf("held %d times", n)
			}
		})
	}
}
