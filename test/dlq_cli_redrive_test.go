package test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// TestDLQActions: the flags of the commands reach the operations, whose rules package deadletter has: a dry run, a limit,
// conditions, another queue, a reset.
func TestDLQActions(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	sc.parkIDs(503, "a", "b", "c", "e")
	sc.parkIDs(422, "d")
	for _, args := range [][]string{{"redrive", "--status", "503", "--dry-run"}, {"discard", "--status", "5xx", "--dry-run"}} {
		if d := sc.acted(args...); !d.DryRun || d.Matched != 4 || d.Done != 0 || d.Total != 5 {
			t.Errorf("%v: %+v", args, d)
		}
	}
	if r := sc.cli(0, "redrive", "--all", "--dry-run"); !strings.Contains(r.stdout, "5 of 5 messages would be redriven; nothing was changed") {
		t.Errorf("%s", r.stdout)
	}
	if got := sc.listedIDs(); !slices.Equal(got, []string{"a", "b", "c", "e", "d"}) {
		t.Fatalf("%q", got)
	}
	if d := sc.acted("redrive", "--status", "503", "--limit", "1", "--rate", "1000/s"); d.Done != 1 || d.Action != "redrive" || d.Queue != sc.dlq() {
		t.Errorf("%+v", d)
	}
	if h := sc.take(sc.queue(), 1)[0].Headers; asInt(h["x-final-retry-count"]) != 10 || h["x-redriven-from"] != sc.dlq() {
		t.Errorf("without a reset: %v", h)
	}
	if r := sc.cli(1, "redrive", "b", "gone", "--reset"); !strings.Contains(r.stderr, `no parked message "gone"`) {
		t.Errorf("%q", r.stderr)
	}
	if d := sc.take(sc.queue(), 1)[0]; d.MessageId != "b" || d.Headers["x-final-retry-count"] != nil || asInt(d.Headers["x-retry-count"]) != 0 {
		t.Errorf("with a reset: %s %v", d.MessageId, d.Headers)
	}
	other := sc.prefix + ".inspect"
	if r := sc.cli(1, "redrive", "--text", `"C"`, "--to", other); !strings.Contains(r.stderr, "does not exist") || sc.ready(sc.dlq()) != 3 {
		t.Errorf("%s", r.all())
	}
	brokertest.Queue(t, brokertest.URL(t), other, nil)
	if r := sc.cli(0, "redrive", "--text", `"C"`, "--to", other); !strings.Contains(r.stdout, `1 of 3 messages redriven to "`+other+`"`) {
		t.Errorf("%s", r.all())
	}
	if d := brokertest.Get(t, brokertest.URL(t), other, time.Minute); d.MessageId != "c" {
		t.Errorf("%s %v", d.MessageId, d.Headers)
	}

	for _, args := range [][]string{{"discard"}, {"discard", "--all"}, {"discard", "--yes"}} {
		sc.cli(64, args...)
	}
	ref := sc.listed("--status", "422")[0].Ref
	if d := sc.acted("discard", ref, "--yes"); d.Done != 1 || d.Total != 2 {
		t.Errorf("by its reference: %+v", d)
	}
	sc.cli(1, "discard", "gone", "--yes")
	for _, want := range []string{"1 of 1 message discarded", "the queue is empty"} {
		if r := sc.cli(0, "discard", "--all", "--yes"); !strings.Contains(r.stdout, want) {
			t.Errorf("%s, want %s", r.stdout, want)
		}
	}
}
