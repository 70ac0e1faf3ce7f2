package test

import (
	"strings"
	"testing"

	"sidecar/internal/brokertest"
)

// TestNodeOfAQueueIsDown: run, check and dlq name it, and advise nothing. From RabbitMQ 4.0 on the broker does not say
// so in time, and it takes a cluster.
func TestNodeOfAQueueIsDown(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	sc.seed()
	if _, down := brokertest.NodeDown(t, sc.dlq()); !down {
		return
	}
	s := start(t, sc.env)
	about := func(e entry) bool { return e.text("object") != "" }
	eventually(t, "the queue has a line", func() bool { return len(s.log.find(about)) > 0 })
	s.stop()
	lines := s.log.find(about)
	if len(lines) != 1 || lines[0].text("problem") != "refused" || !strings.Contains(lines[0].text("found"), "is down") || lines[0].text("fix") != "" {
		t.Errorf("%v", lines)
	}
	r := command(t, sc.env, "check")
	if r.code != 1 || !strings.Contains(r.stdout, `queue "`+sc.dlq()+`": refused`) || strings.Count(r.stdout, "home node") != 1 || strings.Contains(r.stdout, "missing") {
		t.Errorf("check: %d %s", r.code, r.all())
	}
	r = sc.cli(1, "redrive", "--all")
	if !strings.Contains(r.all(), "the node of the broker that keeps the dead-letter queue is down") || strings.Contains(r.all(), "does not exist") ||
		strings.Contains(r.all(), "sidecar run") {
		t.Errorf("dlq: %s", r.all())
	}
}

// TestTypeIsNamedAfterTheBrokerWasAsked: a warning about the type of a queue is about the type that it has. Commands that ask no
// broker say that it holds where none exists.
func TestTypeIsNamedAfterTheBrokerWasAsked(t *testing.T) {
	t.Parallel()
	for existing, classic := range map[string]bool{"": true, "quorum": false} {
		t.Run("exists: "+existing, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t)
			if existing != "" {
				sc.with("QUEUE_TYPE", existing).run().stop()
			}
			sc.with("QUEUE_TYPE", "auto")
			is, unasked := sc.queue()+" is a classic queue: ", sc.queue()+" is a classic queue where none exists: "
			if r := command(t, sc.env, "config"); !strings.Contains(r.all(), unasked) {
				t.Errorf("config: %s", r.all())
			}
			s := sc.run()
			if code, page := s.get(s.control, "/status"); code != 200 || strings.Contains(page, is) != classic {
				t.Errorf("/status: %d %s", code, page)
			}
			if r := command(t, sc.env, "check"); r.code != 0 || strings.Contains(r.all(), is) != classic || strings.Contains(r.all(), "where none exists") {
				t.Errorf("check: %d %s", r.code, r.all())
			}
			s.stop()
			if got := s.log.mentions(is[:len(is)-1]); got != classic || s.log.mentions("where none exists") {
				t.Errorf("logged: %v, want %v\n%s", got, classic, s.log.String())
			}
		})
	}
}
