package test

import (
	"encoding/json"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

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
	if !strings.Contains(r.stderr, `msg="control operation ended" action=discard`) || !strings.Contains(r.stderr, " by=erin ") {
		t.Errorf("%s", r.stderr)
	}
}
