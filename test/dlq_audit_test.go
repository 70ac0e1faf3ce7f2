package test

import (
	"encoding/json"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
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
	if err := json.Unmarshal([]byte(fields), &want); err != nil {
		t.Fatal(err)
	}
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
	me := ""
	if u, err := user.Current(); err == nil {
		me = u.Username
	}
	host, _ := os.Hostname()
	file, other := filepath.Join(t.TempDir(), "parked.jsonl"), sc.prefix+".other"
	if err := sc.declare(other, nil); err != nil {
		t.Fatal(err)
	}
	sc.parkIDs(503, "a", "b", "c")
	sc.cli(0, "export", file, "-q")

	for _, args := range [][]string{
		{"list"}, {"groups"}, {"show", "a"}, {"export"}, {"redrive", "--all", "--dry-run"}, {"discard", "--all", "--dry-run"},
		{"redrive", "--status", "422"}, {"discard", "--yes", "--status", "422"},
	} {
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
	wantAudited(t, r.stderr, `{"action":"redrive","by":"`+me+"@"+host+`","to":"`+other+`","matched":1,"done":1}`)
	if h := sc.take(other, 1)[0].Headers; h["x-redriven-by"] != me+"@"+host {
		t.Errorf("%v", h)
	}
	r = sc.cli(0, "discard", "--all", "--yes", "--as", "bob")
	wantAudited(t, r.stderr, `{"action":"discard","by":"bob","state":"succeeded","done":1,`+queue+`}`)
	r = sc.cli(0, "import", file, "--as", "carol")
	wantAudited(t, r.stderr, `{"action":"import","by":"carol","state":"succeeded","done":3,`+queue+`}`)
	r = sc.cli(1, "redrive", "--all", "--canary", "1", "--canary-timeout", "1s", "--as", "dave")
	wantAudited(t, r.stderr, `{"level":"warn","action":"redrive","by":"dave","state":"failed","done":1}`)

	sc.with("LOG_FORMAT", "text", "LOG_LEVEL", "error")
	r = sc.cli(0, "discard", "--all", "--yes", "--as", "erin")
	if !strings.Contains(r.stderr, `msg="control operation ended" action=discard`) || !strings.Contains(r.stderr, " by=erin ") {
		t.Errorf("%s", r.stderr)
	}
	sc.cli(64, "discard", "--all", "--yes", "--as", "")
}

// TestDeadLetterAPIAudit: the sidecar that runs an operation writes the same line.
func TestDeadLetterAPIAudit(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	s := sc.run()
	sc.park(parkedFor(sc.queue(), 3)...)
	c := s.api("")
	host, _ := os.Hostname()
	done := c.over(c.begin("/dlq/redrive", `{"filter":{"id":["m-0"]}}`).ID)
	if done.State != "succeeded" {
		t.Fatalf("%+v", done)
	}
	c.over(c.begin("/dlq/discard", `{"all":true,"confirm":"`+sc.dlq()+`"}`).ID)
	s.stop()
	list := audited(s.log.String())
	if len(list) != 2 || list[0].text("action") != "redrive" || list[1].text("action") != "discard" || list[1]["done"] != 2.0 {
		t.Fatalf("%v", list)
	}
	for _, e := range list {
		if e.text("by") != "api@"+host || e.text("queue") != sc.dlq() || e.text("state") != "succeeded" || e.text("operation") == "" || e.text("peer") == "" {
			t.Errorf("%v", e)
		}
	}
}
