package test

import (
	"slices"
	"strings"
	"testing"

	"sidecar/internal/brokertest"
)

// reportedObjects returns the objects of the lines about the topology, sorted, each as often as it has a line.
func reportedObjects(s *sidecar) (objects []string) {
	for _, e := range s.log.find(func(e entry) bool { return strings.HasPrefix(e.text("msg"), "topology ") }) {
		objects = append(objects, e.text("object"))
	}
	slices.Sort(objects)
	return objects
}

// TestOneLineForOneObject: with nothing there, or with a queue limit that is reached, each object has one line, and no
// line advises what the sidecar has just tried.
func TestOneLineForOneObject(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"declare", "verify"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("TOPOLOGY_MODE", mode)
			brokertest.QueueLimit(t, 0)
			want := []string{`queue "` + sc.dlq() + `"`, `queue "` + sc.queue() + `"`, `queue "` + sc.retryQueue() + `"`}
			if mode != "declare" {
				want = append(want, `exchange "`+sc.exchange()+`"`, `exchange "`+sc.retryExchange()+`"`)
			}
			slices.Sort(want)
			s := start(t, sc.env)
			eventually(t, "each object has a line", func() bool {
				return len(slices.Compact(reportedObjects(s))) == len(want)
			})
			s.stop()
			if got := reportedObjects(s); !slices.Equal(got, want) {
				t.Errorf("lines about %q, want %q", got, want)
			}
			for _, e := range s.log.find(func(e entry) bool { return e.text("object") != "" }) {
				if mode == "declare" && (e.text("problem") != "refused" || !strings.Contains(e.text("found"), "queue limit") || strings.Contains(e.text("fix"), "declare")) {
					t.Errorf("%v", e)
				}
			}
		})
	}
}

// TestNodeOfAQueueIsDown: run, check and dlq name it, and advise nothing. From RabbitMQ 4.0 on the broker does not say
// so in time, and it takes a cluster.
func TestNodeOfAQueueIsDown(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	sc.seed()
	if _, down := brokertest.NodeDown(t, sc.dlq()); !down {
		return
	}
	for _, mode := range []string{"declare", "verify"} {
		env := sc.envWith("SIDECAR_TOPOLOGY_MODE", mode)
		s := start(t, env)
		eventually(t, "the queue has a line", func() bool { return len(reportedObjects(s)) > 0 })
		s.stop()
		lines := s.log.find(func(e entry) bool { return e.text("object") != "" })
		if len(lines) != 1 || lines[0].text("problem") != "refused" || !strings.Contains(lines[0].text("found"), "is down") || lines[0].text("fix") != "" {
			t.Errorf("%s: %v", mode, lines)
		}
		if r := command(t, env, "check"); r.code != 1 || !strings.Contains(r.stdout, `queue "`+sc.dlq()+`": refused`) || strings.Count(r.stdout, "home node") != 1 || strings.Contains(r.stdout, "missing") {
			t.Errorf("%s: check: %d %s", mode, r.code, r.all())
		}
	}
	for _, args := range [][]string{{"list"}, {"export"}, {"redrive", "--all"}} {
		r := command(t, sc.env, append([]string{"dlq"}, args...)...)
		if r.code == 0 || !strings.Contains(r.all(), "the node of the broker that keeps the dead-letter queue is down") || strings.Contains(r.all(), "does not exist") || strings.Contains(r.all(), "sidecar run") {
			t.Errorf("dlq %q: %d %s", args, r.code, r.all())
		}
	}
}

// TestTypeIsNamedAfterTheBrokerWasAsked: a warning about the type of a queue is about the type that it has. Commands that ask no
// broker say that it holds where none exists.
func TestTypeIsNamedAfterTheBrokerWasAsked(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		asked, existing, vhost string // types of queues; existing is empty where none exists
		classic                bool   // the warning
	}{
		"auto, none exists":             {"auto", "", "classic", true},
		"auto, quorum exists":           {"auto", "quorum", "classic", false},
		"auto, a vhost of quorum":       {"auto", "", "quorum", false},
		"classic, a vhost of quorum":    {"classic", "", "quorum", true},
		"classic, quorum exists":        {"classic", "quorum", "classic", false},
		"auto, classic beside a quorum": {"auto", "classic", "quorum", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.vhost == "quorum" {
				brokertest.DefaultQueueType(t, "quorum")
			}
			sc := newScene(t)
			if tc.existing != "" {
				s := sc.with("QUEUE_TYPE", tc.existing).run()
				s.stop()
			}
			sc.with("QUEUE_TYPE", tc.asked)
			for _, args := range [][]string{{"config"}} {
				r := command(t, sc.env, args...)
				if !strings.Contains(r.all(), sc.queue()+" is a classic queue where none exists: ") {
					t.Errorf("%q: %s", args, r.all())
				}
			}
			if r := command(t, sc.env, "plan"); !strings.Contains(r.stdout, "classic queues where none exists") {
				t.Errorf("plan: %s", r.stdout)
			}
			s := sc.run()
			is := sc.queue() + " is a classic queue: "
			code, page := s.get(s.control, "/status")
			if code != 200 || strings.Contains(page, is) != tc.classic {
				t.Errorf("/status: %d %s", code, page)
			}
			if r := command(t, sc.env, "check"); r.code != 0 || strings.Contains(r.all(), is) != tc.classic || strings.Contains(r.all(), "where none exists") {
				t.Errorf("check: %d %s", r.code, r.all())
			}
			s.stop()
			if got := s.log.mentions(is[:len(is)-1]); got != tc.classic || s.log.mentions("where none exists") {
				t.Errorf("logged: %v, want %v\n%s", got, tc.classic, s.log.String())
			}
		})
	}
}
