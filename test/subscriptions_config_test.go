package test

import (
	"slices"
	"strings"
	"testing"
)

// TestCheckOfSubscriptions: a check names the subscription in each line, and finds what one of them lacks.
func TestCheckOfSubscriptions(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("SUBSCRIPTIONS", "orders,refunds").with("QUEUE_TYPE", "quorum")
	r := command(t, sc.env, "check")
	for _, name := range []string{"orders", "refunds"} {
		if r.code != 1 || !strings.Contains(r.stdout, "problem  "+name+": queue \""+sc.queue()+"."+name+"\": missing\n") {
			t.Errorf("exit %d, %s is missing:\n%s", r.code, name, r.all())
		}
	}
	sc.run()
	before := declared(t, sc.prefix)
	r = command(t, sc.env, "check", "--roundtrip")
	for _, name := range []string{"orders", "refunds"} {
		queue := sc.queue() + "." + name
		for _, want := range []string{"\nok       " + name + ": " + queue + " fits", " was published to " + queue + ".roundtrip, failed with 503"} {
			if r.code != 0 || !strings.Contains(r.stdout, want) {
				t.Errorf("exit %d, not said: %s\n%s", r.code, want, r.all())
			}
		}
	}
	if after := declared(t, sc.prefix); !slices.Equal(after, before) {
		t.Errorf("before:\n%v\nafter:\n%v", before, after)
	}
	r = command(t, sc.env, "check", "--json")
	if lines := strings.Split(strings.TrimSpace(r.stdout), "\n"); r.code != 0 || len(lines) != 2 || !strings.Contains(lines[1], `"subscription":"refunds","queue":"`+sc.queue()+`.refunds","fits":true`) {
		t.Errorf("exit %d:\n%s", r.code, r.all())
	}
}
