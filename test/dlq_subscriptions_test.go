package test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// TestDLQOfSubscriptions: reads are of all dead-letter queues or of one subscription, actions are for one; a queue that
// subscriptions share is read once.
func TestDLQOfSubscriptions(t *testing.T) {
	t.Parallel()
	for _, topology := range []string{"fanout", "topic-tiers"} {
		t.Run(topology, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("SUBSCRIPTIONS", "orders,refunds", "TOPOLOGY", topology)
			queue := map[string]string{"fanout": sc.queue() + ".", "topic-tiers": sc.prefix + "."}[topology]
			dlq := func(of string) string {
				if topology == "fanout" {
					return sc.dlq() + "." + of
				}
				return sc.prefix + ".events.dlq"
			}
			if topology == "topic-tiers" {
				delete(sc.env, "SIDECAR_RETRY_DELAY")
			}
			sc.declared()
			for _, id := range []string{"orders-1", "refunds-1", "orders-2"} {
				of, _, _ := strings.Cut(id, "-")
				m := parked(id, 503)
				m.Headers["x-original-queue"] = queue + of
				sc.publish("", dlq(of), m)
			}
			eventually(t, "all are parked", func() bool { return strings.Count(sc.cli(0, "list", "--json").stdout, "\n") == 3 })

			for args, want := range map[string]string{
				"list": "orders orders refunds", "list --subscription refunds": "refunds", "list --subscription orders --limit 1": "orders",
				"groups": "orders refunds", "groups --subscription orders": "orders",
			} {
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
			if r := sc.cli(64, "list", "--subscription", "refund"); !strings.Contains(r.stderr, "did you mean refunds?") {
				t.Error(r.stderr)
			}
			file := filepath.Join(t.TempDir(), "parked.jsonl")
			for _, args := range [][]string{{"redrive", "--all"}, {"discard", "--all", "--yes"}, {"export", file + "2"}, {"import", file}} {
				if topology == "topic-tiers" {
					break // one queue
				}
				must.Do(t, os.WriteFile(file, nil, 0o600))
				if r := sc.cli(64, args...); !strings.Contains(r.stderr, "this is for one dead-letter queue: choose the subscription, one of orders, refunds (--subscription, over HTTP ?subscription=)") {
					t.Errorf("%q: %s", args, r.stderr)
				}
			}

			exported := filepath.Join(t.TempDir(), "orders.jsonl")
			sc.cli(0, "export", exported, "--subscription", "orders")
			if b, err := os.ReadFile(exported); err != nil || strings.Count(string(b), "\n") != 2 {
				t.Errorf("%d lines: %v", strings.Count(string(b), "\n"), err)
			}
			if d := sc.acted("discard", "--all", "--yes", "--subscription", "orders"); d.Done != 2 || d.Skipped != 0 {
				t.Errorf("%+v", d)
			}
			if d := sc.acted("import", exported, "--subscription", "orders"); d.Done != 2 {
				t.Errorf("%+v", d)
			}
			if d := sc.acted("redrive", "--all", "--subscription", "refunds"); d.Done != 1 || d.Skipped != 0 {
				t.Errorf("%+v", d)
			}
			eventually(t, "it is back", func() bool { return sc.ready(queue+"refunds") == 1 && sc.ready(queue+"orders") == 0 })
			if n := strings.Count(sc.cli(0, "list", "--json").stdout, "\n"); n != 2 {
				t.Errorf("%d are left", n)
			}
		})
	}
}
