package test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// rejectsAll is how many log lines say that consumption stops, or goes on, because the app refuses every message.
func (s *sidecar) rejectsAll(msg string) int {
	return len(s.log.find(func(e entry) bool { return e.text("msg") == msg && e.text("reason") == "app_rejects_all" }))
}

// TestAppRejectsAll: a wrong path, a login page or a wrong token must not send a backlog through its retries: a few
// messages are tried, each another one, hardly any is parked, the reason is shown without what may be secret, and after
// the repair everything is handled.
func TestAppRejectsAll(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		statuses []int
		env      []string
		detail   string
	}{
		"path":    {[]int{404}, []string{"MAX_RETRIES", "1"}, " answers every message with status 404\""},
		"login":   {[]int{302, 303}, []string{"CONCURRENCY", "3"}, " and Location https://app.example/events\""},
		"batches": {[]int{302}, []string{"BATCH_SIZE", "20", "BATCH_WAIT", "100ms"}, " answers every message with status 302"},
		"mixed":   {[]int{400, 404, 303, 422, 401}, []string{"ROUTES", "#=/routed"}, "/routed refuses every message, the last with status "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const backlog = 300
			sc := newScene(t).with("MAX_RETRIES", "0").with(tc.env...)
			var n atomic.Int64
			var repaired atomic.Bool
			sc.app.otherwise(func(*delivery) answer {
				i := int(n.Add(1))
				if repaired.Load() || name == "login" && i <= 5 {
					return status(204) // the session ends after that
				}
				a := status(tc.statuses[i%len(tc.statuses)])
				if a.status < 400 {
					a.header = map[string]string{"Location": fmt.Sprintf("https://me:secret@app.example/events;s=%d?next=/msg/%d#x", i, i)}
				}
				return a
			})
			s := sc.run()
			sc.send(numbered("m", backlog)...)
			eventually(t, "a pause", func() bool { return s.metric("sidecar_paused", `reason="app_rejects_all"`) == 1 })
			var body string
			eventually(t, "/status says why, if not during a try", func() bool {
				_, body = s.get(s.control, "/status")
				return strings.Contains(body, tc.detail)
			})
			if strings.Contains(body, "next=") || strings.Contains(body, "secret") {
				t.Errorf("/status: %s", body)
			}
			// The fault itself, two tries long. Without the pause hundreds of messages are parked meanwhile.
			stays(t, 3*time.Second, "few parked", func() bool { return sc.ready(sc.dlq()) < 50 })
			if log := s.log.String(); s.rejectsAll("paused") != 1 || strings.Contains(log, "next=") || strings.Contains(log, "secret") {
				t.Errorf("log: %s", log)
			}
			repaired.Store(true)
			if name == "path" {
				eventually(t, "everything acked", func() bool {
					return s.metric("sidecar_messages_settled_total", `outcome="ack"`) == backlog
				})
				sc.settledAll(s, 0)
				if p, r := s.rejectsAll("paused"), s.rejectsAll("resumed"); p != 1 || r != 1 {
					t.Errorf("%d lines say paused and %d resumed, want one each", p, r)
				}
			}
		})
	}
}

// TestPortInUse is the one thing about the machine that ends the process: exit 1, naming the variable and the address.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	taken := newApp(t)
	for _, name := range []string{"SIDECAR_ADMIN_ADDR", "SIDECAR_CONTROL_ADDR", "SIDECAR_PUBLISH_ADDR"} {
		env := valid()
		env[name] = taken.Addr
		if r := command(t, env, "run"); r.code != 1 || !strings.Contains(r.stderr, name+"="+taken.Addr+": address already in use: stop") {
			t.Errorf("%s in use: exit %d, want 1, the variable and the address:\n%s", name, r.code, r.all())
		}
	}
}

// TestFewFileDescriptors: it may be slow, it must not lose, park or die. Idle connections to the app hold the
// descriptors until they are closed, so that consumption pauses for some seconds after every 30 messages.
func TestFewFileDescriptors(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONCURRENCY", "50", "MAX_RETRIES", "0").seed()
	sc.app.otherwise(func(*delivery) answer { return answer{status: 200, gate: soon()} })
	s := launchBinary(t, "sh", sc.env, "-c", "ulimit -n 32 && exec "+program)
	ids := numbered("m", 50)
	sc.send(ids...)
	sc.app.awaitAll(ids...)
	if s.ended() || !s.log.mentions("too many open files") {
		t.Errorf("ended: %v, or it had descriptors enough", s.ended())
	}
	if n := sc.ready(sc.dlq()); n != 0 {
		t.Errorf("%d messages were parked for the lack of file descriptors", n)
	}
}

// soon closes by itself, so that many requests are in flight at once.
func soon() <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(50*time.Millisecond, func() { close(c) })
	return c
}
