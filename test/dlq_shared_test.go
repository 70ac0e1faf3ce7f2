package test

import (
	"slices"
	"strings"
	"testing"
)

// TestDLQSharedByTwoServices: what one service's commands redrive, discard and purge is its own. What the other one has
// parked, and messages without a known origin, stays, in its order.
func TestDLQSharedByTwoServices(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc, audit := newScene(t), newScene(t)
			p := sc.prefix
			topology := []string{"TOPOLOGY", "topic-tiers", "QUEUE_TYPE", queueType, "RETRY_DELAYS", "300ms", "RETRY_DELAY", "", "MAX_RETRIES", "1"}
			sc.with(topology...)
			audit.with(topology...).with("SERVICE", p+"-audit", "BINDINGS", p+".events:audit.*")
			shared := p + ".events.dlq"
			sc.app.otherwise(func(*delivery) answer { return status(409) })
			audit.app.otherwise(func(*delivery) answer { return status(409) })
			s, a := sc.run(), audit.run()
			all := 0
			fail := func(name string, n int) (ours, theirs []string) {
				ours, theirs = numbered("svc-"+name, n), numbered("audit-"+name, n)
				for i := range n {
					sc.publish(p+".events", "svc.created", message(ours[i]))
					sc.publish(p+".events", "audit.created", message(theirs[i]))
				}
				all += 2 * n
				eventually(t, "all parked", func() bool { return sc.ready(shared) == all })
				return ours, theirs
			}
			_, theirs := fail("a", 15)
			sc.publish("", shared, message("of no service")) // without a word where it comes from
			all++
			before := audit.foreign(false)
			if len(before) != 15 {
				t.Fatalf("%q", before)
			}

			if d := sc.acted("redrive", "--all"); d.Matched != 15 || d.Done != 15 || d.Skipped != 16 || d.Total != 31 {
				t.Errorf("redrive: %+v", d)
			}
			eventually(t, "parked again", func() bool { return sc.app.total() == 3*15 && sc.ready(shared) == all })
			if d := sc.acted("discard", "--all", "--yes"); d.Done != 15 || d.Skipped != 16 {
				t.Errorf("discard: %+v", d)
			}
			all -= 15
			ours, more := fail("b", 10)
			if d := sc.acted("discard", "--yes", ours[3], more[3], "of no service"); d.Done != 1 || d.Skipped != 2 {
				t.Errorf("discard by id: %+v", d)
			}
			if d := sc.acted("discard", "--all", "--yes"); d.Done != 9 || d.Skipped != 26 {
				t.Errorf("purge: %+v", d)
			}
			if r := sc.cli(0, "discard", "--all", "--yes"); !strings.Contains(r.stdout, "26 of other services left alone") {
				t.Errorf("%s", r.all())
			}

			if got := audit.foreign(false); !slices.Equal(got[:15], before) || len(got) != 25 {
				t.Errorf("theirs: %q, before: %q", got, before)
			}
			if got := sc.foreign(true); len(got) != 26 || !slices.Contains(got, "of no service") {
				t.Errorf("left: %q", got)
			}
			for _, id := range append(theirs, more...) {
				if n := len(audit.app.seen(id)); n != 2 || len(sc.app.seen(id)) != 0 {
					t.Errorf("%s came %d times to its own service", id, n)
				}
			}
			s.stop()
			a.stop()
		})
	}
}

// foreign are the ids of the messages that are another service's, or those that are not, in the order of the queue.
func (sc *scene) foreign(foreign bool) (ids []string) {
	sc.t.Helper()
	type marked struct {
		ID      string `json:"message_id"`
		Foreign bool   `json:"foreign"`
	}
	for _, m := range documents[marked](sc.t, sc.cli(0, "list", "--json", "--limit", "0")) {
		if m.Foreign == foreign {
			ids = append(ids, m.ID)
		}
	}
	return ids
}
