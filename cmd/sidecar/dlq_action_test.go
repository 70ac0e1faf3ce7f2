package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/deadletter"
	"sidecar/internal/testkit/must"
)

func TestOutcome(t *testing.T) {
	t.Parallel()
	redrive, imports := action{name: "redrive", done: "redriven", rest: stays}, action{name: "import", done: "imported"}
	for want, c := range map[string]struct {
		a   action
		dry bool
		p   deadletter.Progress
	}{
		"the queue is empty: nothing to redrive":                   {redrive, false, deadletter.Progress{}},
		"nothing to redrive: none of 7 messages was chosen":        {redrive, false, deadletter.Progress{Total: 7, Scanned: 7}},
		"5 of 7 messages redriven":                                 {redrive, false, deadletter.Progress{Total: 7, Matched: 5, Done: 5}},
		"5 of 7 messages would be redriven; nothing was changed":   {redrive, true, deadletter.Progress{Total: 7, Matched: 5}},
		"4 of 7 messages redriven, 1 failed and still parked":      {redrive, false, deadletter.Progress{Total: 7, Matched: 5, Done: 4, Failed: 1}},
		"5 of 7 messages redriven, 2 of other services left alone": {redrive, false, deadletter.Progress{Total: 7, Matched: 5, Done: 5, Skipped: 2}},
		"3 of 7 messages redriven; canary: 3 sent, 2 good, 1 bad":  {redrive, false, deadletter.Progress{Total: 7, Matched: 3, Done: 3, Canary: deadletter.CanaryProgress{Sent: 3, Good: 2, Bad: 1}}},
		`2 of 7 messages redriven to "audit"`:                      {action{name: "redrive", done: `redriven to "audit"`}, false, deadletter.Progress{Total: 7, Matched: 2, Done: 2}},
		"1 message imported":                                       {imports, false, deadletter.Progress{Matched: 1, Done: 1}},
		"0 messages imported":                                      {imports, false, deadletter.Progress{}},
	} {
		c.a.dry = c.dry
		if got := outcome(&c.a, &c.p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// reported is what a command leaves behind that has come so far.
func reported(t *testing.T, args []string, p deadletter.Progress, err error) (stdout string, failed error) {
	t.Helper()
	var out bytes.Buffer
	c := newTestCall(invocation{stdout: &out}, "redrive")
	if !slices.ContainsFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") }) {
		args = append(args, "--all")
	}
	var s deadletter.Selection
	c.takesAction()
	c.takes(&s)
	must.Do(t, c.flags.Parse(args))
	c.words = c.flags.Args()
	must.Do(t, c.choose(&s))
	for i := range min(p.Matched+p.Skipped, len(c.filter.IDs())) { // as many as the operation says to have found
		c.filter.Match(&deadletter.Message{Facts: deadletter.Facts{MessageID: c.filter.IDs()[i]}})
	}
	failed = c.report(t.Context(), anyQueue(t), &action{name: "redrive", done: "redriven", rest: stays, limit: s.Limit}, &p, err)
	return out.String(), failed
}

func TestReport(t *testing.T) {
	t.Parallel()
	all := deadletter.Progress{Total: 7, Scanned: 7, Matched: 2, Done: 2}
	for _, c := range []struct {
		args   []string
		p      deadletter.Progress
		err    error
		stdout string
		failed string // "" = nothing did
	}{
		{nil, all, nil, "2 of 7 messages redriven\n", ""},
		{[]string{"a", "b"}, all, nil, "2 of 7 messages redriven\n", ""},
		{[]string{"a", "b", "c"}, all, nil, "2 of 7", `no parked message "c"`},
		{[]string{"a", "b", "c", "--limit", "2"}, all, nil, "2 of 7", ""},
		{[]string{"a\x1b"}, deadletter.Progress{Total: 7, Scanned: 7}, nil, "nothing to redrive", `no parked message "a\x1b"`},
		{[]string{"a"}, deadletter.Progress{Total: 7, Scanned: 7, Skipped: 1}, nil, "1 of other services left alone", ""},
		{[]string{"a"}, deadletter.Progress{}, nil, "", `no parked message "a"`},
		{nil, deadletter.Progress{Total: 7, Scanned: 7, Matched: 3, Done: 2, Failed: 1}, nil, "1 failed and still parked", "1 message could not be redriven, still parked"},
		{nil, all, deadletter.ErrStopped, "2 of 7 messages redriven\n", "stopped: 2 redriven, the rest is still in the queue: run the same command again"},
		{nil, deadletter.Progress{}, deadletter.ErrStopped, "", "stopped: nothing was changed"},
	} {
		stdout, err := reported(t, c.args, c.p, c.err)
		if !strings.Contains(stdout, c.stdout) || c.stdout == "" && stdout != "" {
			t.Errorf("%v: %q, want %q", c, stdout, c.stdout)
		}
		if (err == nil) != (c.failed == "") || err != nil && !strings.Contains(err.Error(), c.failed) {
			t.Errorf("%v: %v, want %q", c, err, c.failed)
		}
		stdout, jerr := reported(t, append([]string{"--json"}, c.args...), c.p, c.err)
		var r actionResult
		if err := json.Unmarshal([]byte(stdout), &r); err != nil || r.Done != c.p.Done || r.Total != c.p.Total || r.Action != "redrive" || r.Queue != "wms.dlq.wms-cincout" {
			t.Errorf("%v: %s, %v", c, stdout, err)
		}
		if (jerr == nil) != (r.Error == "") || jerr != nil && jerr.Error() != r.Error || (jerr == nil) != (err == nil) {
			t.Errorf("%v: %v and %q", c, jerr, r.Error)
		}
	}
}

// TestUnreadableReport: what has been done is said on the other stream then.
func TestUnreadableReport(t *testing.T) {
	t.Parallel()
	for _, asJSON := range []bool{false, true} {
		c := newTestCall(invocation{stdout: full{}}, "redrive")
		c.json = asJSON
		p := deadletter.Progress{Total: 2, Matched: 2, Done: 2}
		err := c.report(t.Context(), anyQueue(t), &action{name: "redrive", done: "redriven", rest: stays}, &p, nil)
		if err == nil || !strings.Contains(err.Error(), "2 redriven, but the output could not be written: "+errFull.Error()) {
			t.Errorf("%v", err)
		}
	}
	c := newTestCall(invocation{environ: nowhere, stdout: full{}}, "list")
	err := c.readOnly(t.Context(), func(deadletter.Queues) error {
		c.say("x")
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), errFull.Error()) {
		t.Errorf("%v", err)
	}
}

// TestWriteFile: a file gets its name when all of it is on the disk, and takes it from no other unasked. test
// TestDLQExportToAFile has what users see of it.
func TestWriteFile(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "parked.jsonl")
	holds := func(want string, files int) {
		t.Helper()
		b, _ := os.ReadFile(name)
		if all := must.Get(os.ReadDir(filepath.Dir(name)))(t); string(b) != want || len(all) != files {
			t.Fatalf("%q in %d files, want %q in %d", b, len(all), want, files)
		}
	}
	// begin writes "new" while during runs.
	begin := func(force bool, during func(io.Writer) error) error {
		return writeFile(name, force, func(w io.Writer) error {
			_, err := io.WriteString(w, "new")
			return errors.Join(err, during(w))
		})
	}
	nothing := func(io.Writer) error { return nil }
	if err := begin(false, func(io.Writer) error { holds("", 1); return errFull }); !errors.Is(err, errFull) { // under a name of its own
		t.Errorf("%v", err)
	}
	holds("", 0)
	if err := begin(false, func(io.Writer) error { return begin(false, nothing) }); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("a file that came meanwhile was replaced: %v", err)
	}
	holds("new", 1)
	must.Do(t, os.WriteFile(name, []byte("old"), 0o644))
	if err := vacant(name, false); err == nil {
		t.Error("an existing file may be replaced without --force")
	}
	must.Do(t, begin(true, func(io.Writer) error { holds("old", 2); return nil }))
	holds("new", 1)
	closed := func(w io.Writer) error { return w.(io.Closer).Close() } // so that it cannot be synced
	if err := begin(true, closed); err == nil {
		t.Error("what the disk has not taken got its name")
	}
	holds("new", 1)
	if err := vacant(filepath.Dir(name), true); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory: %v", err)
	}
	if err := vacant(filepath.Join(name, "below"), false); err == nil {
		t.Error("a file below a file")
	}
}
