package test

import (
	"strings"
	"testing"

	"sidecar/internal/brokertest"
)

// TestTypeIsSaidAfterLooking: a warning about the type of a queue names the type that the queue has. Commands that ask no
// broker say that it holds where none exists.
func TestTypeIsSaidAfterLooking(t *testing.T) {
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
