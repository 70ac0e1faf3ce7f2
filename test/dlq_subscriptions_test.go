package test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDLQOfSubscriptions: reads are of all dead-letter queues or of one subscription, actions are for one.
func TestDLQOfSubscriptions(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("SUBSCRIPTIONS", "orders,refunds").declared()
	for _, id := range []string{"orders-1", "refunds-1", "orders-2"} {
		of, _, _ := strings.Cut(id, "-")
		m := parked(id, 503)
		m.Headers["x-original-queue"] = sc.queue() + "." + of
		sc.publish("", sc.dlq()+"."+of, m)
	}
	eventually(t, "all are parked", func() bool { return sc.ready(sc.dlq()+".orders") == 2 && sc.ready(sc.dlq()+".refunds") == 1 })
	for args, want := range map[string]string{"list": "orders orders refunds", "list --subscription refunds": "refunds", "groups": "orders refunds"} {
		var got []string
		lines := strings.Split(strings.TrimSpace(sc.cli(0, strings.Fields(args)...).stdout), "\n")
		if !strings.HasPrefix(lines[0], "SUBSCRIPTION") {
			t.Errorf("%s: %s", args, lines[0])
		}
		for _, line := range lines[1 : len(lines)-1] {
			got = append(got, strings.Fields(line)[0])
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
	if r := sc.cli(0, "show", "refunds-1"); !strings.Contains(r.stdout, "subscription      refunds\n") {
		t.Errorf("show: %s", r.stdout)
	}
	if r := sc.cli(64, "redrive", "--all"); !strings.Contains(r.stderr, "choose the subscription, one of orders, refunds (--subscription") {
		t.Error(r.stderr)
	}
	file := filepath.Join(t.TempDir(), "orders.jsonl")
	for _, args := range [][]string{{"export", file}, {"discard", "--all", "--yes"}, {"import", file}} {
		if d := sc.acted(append(args, "--subscription", "orders")...); d.Done != 2 || d.Skipped != 0 {
			t.Errorf("%q: %+v", args, d)
		}
	}
	if d := sc.acted("redrive", "--all", "--subscription", "refunds"); d.Done != 1 || sc.ready(sc.queue()+".refunds") != 1 {
		t.Errorf("%+v", d)
	}
}
