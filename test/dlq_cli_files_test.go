package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// TestDLQExportToAFile: it has its name once it is complete, belongs to its owner, and replaces nothing unasked.
func TestDLQExportToAFile(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	sc.parkIDs(503, "a", "b")
	dir := t.TempDir()
	file := filepath.Join(dir, "parked.jsonl")
	lines := func() int {
		t.Helper()
		return strings.Count(string(must.Get(os.ReadFile(file))(t)), "\n")
	}
	if r := sc.cli(0, "export", file); !strings.Contains(r.stdout, "2 of 2 messages exported") || lines() != 2 {
		t.Errorf("%s", r.all())
	}
	if info := must.Get(os.Stat(file))(t); info.Mode().Perm() != 0o600 {
		t.Errorf("%v", info.Mode())
	}
	sc.parkIDs(422, "c")
	if r := sc.cli(1, "export", file); !strings.Contains(r.stderr, "--force") || lines() != 2 {
		t.Errorf("%s", r.stderr)
	}
	if d := sc.acted("export", file, "--force", "--status", "422"); d.Done != 1 || d.Action != "export" || lines() != 1 {
		t.Errorf("%+v", d)
	}
	if r := sc.cli(0, "export", "--limit", "1"); strings.Count(r.stdout, "\n") != 1 || !strings.Contains(r.stderr, "1 of 3 messages exported") {
		t.Errorf("%s", r.all())
	}
	if r := sc.cli(0, "export", "-", "-q"); strings.Count(r.stdout, "\n") != 3 || r.stderr != "" {
		t.Errorf("%s", r.all())
	}
	sc.deleteQueue(sc.dlq())
	if r := sc.cli(1, "export", filepath.Join(dir, "other")); !strings.Contains(r.stderr, "the dead-letter queue does not exist: ") ||
		!strings.Contains(r.stderr, sc.dlq()) || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("no queue: %q", r.stderr)
	}
	if all := must.Get(os.ReadDir(dir))(t); len(all) != 1 {
		t.Errorf("%v", all)
	}
}

// TestDLQImportGoesOn: what was exported is parked again, as it was. A bad line ends an import, which says how to go on.
func TestDLQImportGoesOn(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	sc.parkIDs(503, "a", "b", "c")
	exported := sc.cli(0, "export", "-q").stdout
	lines := strings.SplitAfter(exported, "\n")
	sc.acted("discard", "--all", "--yes")
	file := filepath.Join(t.TempDir(), "parked.jsonl")
	must.Do(t, os.WriteFile(file, []byte(lines[0]+lines[1][:40]+"\n"+lines[2]), 0o600))
	r := sc.cli(1, "import", file)
	if !strings.Contains(r.stderr, "line 2") || !strings.Contains(r.stderr, "--skip 1") || !strings.Contains(r.stdout, "1 message imported") {
		t.Errorf("%s", r.all())
	}
	must.Do(t, os.WriteFile(file, []byte(exported), 0o600))
	if d := sc.acted("import", "--skip", "1", file); d.Done != 2 || d.Action != "import" {
		t.Errorf("%+v", d)
	}
	if again := sc.cli(0, "export", "-q").stdout; again != exported {
		t.Errorf("parked again:\n%s\nwas:\n%s", again, exported)
	}
	sc.cli(1, "import", file+".missing")
}
