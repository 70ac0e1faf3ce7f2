//go:build nightly

package test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// usage is what a sidecar holds of things that leak.
type usage struct {
	goroutines, files, connections int
	rss                            int // bytes
}

func (u usage) String() string {
	return fmt.Sprintf("%d goroutines, %d files, %d app connections, %.1f MiB", u.goroutines, u.files, u.connections, float64(u.rss)/(1<<20))
}

// usage asks for the goroutines first: the connection it takes to ask is closed again when the rest is counted.
func (sc *scene) usage(s *sidecar) usage {
	sc.t.Helper()
	u := usage{goroutines: int(s.metric("go_goroutines"))}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
	if err != nil {
		sc.t.Fatal(err)
	}
	u.files, u.connections, u.rss = len(files), sc.app.Connections(), s.rss()
	return u
}

// Slack on top of 5 %, for numbers so small that one more is more than that: a probe or the question itself may be
// under way. It is less than the six sessions of a storm, so that one thing kept by each shows. A heap that has been
// through a storm lies in more pieces than before; a megabyte is a seventh of the bodies that went through.
const (
	slackCount = 3
	slackRSS   = 1 << 20
)

func (u usage) within(before usage) bool {
	fits := func(now, then, slack int) bool { return now <= then+then/20+slack }
	return fits(u.goroutines, before.goroutines, slackCount) && fits(u.files, before.files, slackCount) &&
		fits(u.connections, before.connections, slackCount) && fits(u.rss, before.rss, slackRSS)
}

// TestResourcesAfterTheStorm: cut connections, a broker that is away, app restarts, retries, parks and 425s leave
// nothing behind. Before is after a first, smaller storm: only then does the sidecar have all that it ever needs. What
// it lets go of it may let go of in its own time.
func TestResourcesAfterTheStorm(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with(
		"CONCURRENCY", "8", "MAX_RETRIES", "3", "REQUEUE_DELAY_MIN", "250ms", "REQUEUE_DELAY_MAX", "300ms", "LOG_LEVEL", "info",
	).seed()
	p := linked(t, sc)
	sc.app.otherwise(stormy)
	s := launchBinary(t, shipped(t), sc.env).listening().awaitReady()

	sc.storm(s, p, "first", 1)
	before := sc.calm(s, func(u usage) bool { return u.connections == 0 })
	t.Logf("before: %v", before)
	sc.storm(s, p, "second", 3)
	var after usage
	defer func() { t.Logf("after: %v", after) }()
	after = sc.calm(s, func(u usage) bool { after = u; return u.within(before) })
	if n := s.metric("sidecar_amqp_reconnects_total"); n < 7 {
		t.Errorf("%v reconnects: that was no storm", n)
	}
	for _, outcome := range []string{"ack", "retry", "requeue", "park"} {
		if s.metric("sidecar_messages_settled_total", `outcome="`+outcome+`"`) < 50 {
			t.Errorf("hardly any %s: that was no storm", outcome)
		}
	}
	s.stop()
}

// stormy answers by the message's id.
func stormy(d *delivery) answer {
	switch {
	case strings.Contains(d.id, "late") && d.nth == 1:
		return status(409) // a 500 would let the breaker pause
	case strings.Contains(d.id, "bad"):
		return answer{status: 422, header: map[string]string{"Content-Type": "application/problem+json"}, body: `{"title":"no"}`}
	case strings.Contains(d.id, "early") && d.nth <= 2:
		return status(425)
	}
	return answer{status: 200, body: strings.Repeat("y", 2000)}
}

// storm publishes messages of every fate and breaks everything around them n times, then waits until they are settled.
func (sc *scene) storm(s *sidecar, p *proxy, name string, n int) {
	sc.t.Helper()
	parked := sc.ready(sc.dlq())
	for i := range n {
		part := fmt.Sprintf("%s-%d", name, i)
		for kind, count := range map[string]int{"good": 150, "late": 40, "bad": 20, "early": 40} {
			list := messages(numbered(part+"-"+kind, count)...)
			for j := range list {
				list[j].Body = []byte(strings.Repeat("x", 100+j*200))
			}
			sc.sendMessage(list...)
		}
		sc.app.down()
		eventually(sc.t, "the app is missed", func() bool { return s.metric("sidecar_app_up") == 0 })
		sc.app.up()
		s.awaitReady()
		p.cut()
		eventually(sc.t, "reconnected", func() bool { return s.ready() && sc.consumers(sc.queue()) == 1 })
		p.down()
		eventually(sc.t, "the broker is missed", func() bool { return !s.ready() })
		p.up()
		s.awaitReady()
		var left string
		defer func() {
			if sc.t.Failed() {
				sc.t.Log("left of the storm: " + left)
			}
		}()
		eventually(sc.t, "everything settled", func() bool {
			ready, waiting := sc.ready(sc.queue()), sc.ready(sc.retryQueue())
			inflight, delayed := s.metric("sidecar_inflight_messages"), s.metric("sidecar_delayed_messages")
			bad := sc.ready(sc.dlq()) - parked // not by attempts: the app may have gone in the middle of one
			left = fmt.Sprintf("%d ready, %d in the retry queue, %v in flight, %v delayed, %d parked",
				ready, waiting, inflight, delayed, bad)
			return ready == 0 && waiting == 0 && inflight == 0 && delayed == 0 && bad >= 20*(i+1)
		})
	}
}

// calm waits for a picture that is good and returns it.
func (sc *scene) calm(s *sidecar, good func(usage) bool) (u usage) {
	sc.t.Helper()
	settled := time.Now().Add(12 * time.Second) // idle connections are let go of, and memory goes back, after 5 s of rest
	eventually(sc.t, "a calm sidecar", func() bool {
		u = sc.usage(s)
		return time.Now().After(settled) && good(u)
	})
	return u
}
