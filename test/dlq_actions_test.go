package test

import (
	"encoding/json"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// TestDLQActions: the flags of the commands reach the operations, whose rules package deadletter has: a dry run, a limit,
// conditions, a reset.
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
	sc.says(0, "redrive --all --dry-run", "5 of 5 messages would be redriven; nothing was changed")
	if got := sc.listedIDs(); !slices.Equal(got, []string{"a", "b", "c", "e", "d"}) {
		t.Fatalf("%q", got)
	}
	if d := sc.acted("redrive", "--status", "503", "--limit", "1", "--rate", "1000/s"); d.Done != 1 || d.Action != "redrive" || d.Queue != sc.dlq() {
		t.Errorf("%+v", d)
	}
	if h := sc.take(sc.queue(), 1)[0].Headers; asInt(h["x-final-retry-count"]) != 10 || h["x-redriven-from"] != sc.dlq() {
		t.Errorf("without a reset: %v", h)
	}
	sc.says(1, "redrive b gone --reset", `no parked message "gone"`)
	if d := sc.take(sc.queue(), 1)[0]; d.MessageId != "b" || d.Headers["x-final-retry-count"] != nil || asInt(d.Headers["x-retry-count"]) != 0 {
		t.Errorf("with a reset: %s %v", d.MessageId, d.Headers)
	}
	if d := sc.acted("redrive", "--text", `"C"`); d.Done != 1 || sc.take(sc.queue(), 1)[0].MessageId != "c" {
		t.Errorf("by its text: %+v", d)
	}
	ref := sc.listed("--status", "422")[0].Ref
	if d := sc.acted("discard", ref, "--yes"); d.Done != 1 || d.Total != 2 {
		t.Errorf("by its reference: %+v", d)
	}
	sc.cli(1, "discard", "gone", "--yes")
	sc.says(0, "discard --all --yes", "1 of 1 message discarded")
	sc.says(0, "discard --all --yes", "the queue is empty")
}

// audited returns the log lines in text about what was done to dead letters.
func audited(text string) (list []entry) {
	for line := range strings.Lines(text) {
		var e entry
		if json.Unmarshal([]byte(line), &e) == nil && e.is("control operation ended") {
			list = append(list, e)
		}
	}
	return list
}

// wantAudited fails unless there is one line, with these fields, which are a JSON object.
func wantAudited(t testing.TB, text, fields string) {
	t.Helper()
	var want map[string]any
	must.Do(t, json.Unmarshal([]byte(fields), &want))
	list := audited(text)
	if len(list) != 1 {
		t.Errorf("%d lines say what was done:\n%s", len(list), text)
		return
	}
	for name, v := range want {
		if list[0][name] != v {
			t.Errorf("%s is %v, want %v: %v", name, list[0][name], v, list[0])
		}
	}
}

// TestDLQAudit: a command that changes dead letters logs who did what, and with which result. A command that changed
// nothing logs nothing.
func TestDLQAudit(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	queue := `"queue":"` + sc.dlq() + `"`
	me := must.Get(user.Current())(t).Username + "@" + must.Get(os.Hostname())(t)
	file, other := filepath.Join(t.TempDir(), "parked.jsonl"), sc.prefix+".other"
	must.Do(t, sc.declare(other, nil))
	sc.parkIDs(503, "a", "b", "c")
	for _, args := range [][]string{{"list"}, {"export", file}, {"redrive", "--all", "--dry-run"}, {"discard", "--yes", "--status", "422"}} {
		if r := sc.cli(0, args...); len(audited(r.all())) != 0 {
			t.Errorf("%q: %s", args, r.all())
		}
	}
	r := sc.cli(0, "redrive", "a", "--as", "alice\u202e")
	wantAudited(t, r.stderr, `{"level":"info","action":"redrive","by":"alice`+"\u202e"+`","state":"succeeded","dry_run":false,"done":1,"failed":0,`+queue+`}`)
	wantHarmless(t, "the line", r.all())
	if by, _ := sc.take(sc.queue(), 1)[0].Headers["x-redriven-by"].(string); !strings.HasPrefix(by, "alice") {
		t.Errorf("x-redriven-by %q", by)
	}
	r = sc.cli(0, "redrive", "b", "--to", other, "--quiet", "--json")
	wantAudited(t, r.stderr, `{"action":"redrive","by":"`+me+`","to":"`+other+`","matched":1,"done":1}`)
	if h := sc.take(other, 1)[0].Headers; h["x-redriven-by"] != me {
		t.Errorf("%v", h)
	}
	r = sc.cli(0, "import", file, "--as", "carol")
	wantAudited(t, r.stderr, `{"action":"import","by":"carol","state":"succeeded","done":3,`+queue+`}`)
	r = sc.cli(1, "redrive", "--all", "--canary", "1", "--canary-timeout", "1s", "--as", "dave")
	wantAudited(t, r.stderr, `{"level":"warn","action":"redrive","by":"dave","state":"failed","done":1}`)

	sc.with("LOG_FORMAT", "text", "LOG_LEVEL", "error")
	r = sc.cli(0, "discard", "--all", "--yes", "--as", "erin")
	if !strings.Contains(r.stderr, ` info  control operation ended  action=discard`) || !strings.Contains(r.stderr, " by=erin ") {
		t.Errorf("%s", r.stderr)
	}
}
