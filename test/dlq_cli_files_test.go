package test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDLQDiscard(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	sc.parkIDs(503, "a", "b", "a")
	sc.parkIDs(422, "c", "d")
	for _, args := range [][]string{{"discard"}, {"discard", "--all"}, {"discard", "--status", "422"}, {"discard", "c"}, {"discard", "--yes"}} {
		sc.cli(64, args...)
	}
	if n := sc.ready(sc.dlq()); n != 5 {
		t.Fatalf("%d are left without an error", n)
	}
	if d := sc.acted("discard", "--status", "422", "--limit", "1", "--yes"); d.Done != 1 {
		t.Errorf("%+v", d)
	}
	first := sc.listed()[0]
	if d := sc.acted("discard", first.Ref, "--yes"); d.Done != 1 && d.Done != 2 {
		t.Errorf("by its reference: %+v", d)
	}
	sc.cli(1, "discard", "gone", "--yes")
	if r := sc.cli(0, "discard", "--all", "--yes"); !strings.Contains(r.stdout, "messages discarded") {
		t.Errorf("%s", r.stdout)
	}
	if n := sc.ready(sc.dlq()); n != 0 {
		t.Errorf("%d are left", n)
	}
	if r := sc.cli(0, "discard", "--all", "--yes"); !strings.Contains(r.stdout, "the queue is empty") {
		t.Errorf("%s", r.stdout)
	}
}

// TestDLQImportGoesOn: a bad line ends an import, which says how to go on.
func TestDLQImportGoesOn(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	sc.parkIDs(503, "a", "b", "c")
	lines := strings.SplitAfter(sc.cli(0, "export", "-q").stdout, "\n")
	sc.acted("discard", "--all", "--yes")
	file := filepath.Join(t.TempDir(), "parked.jsonl")
	write := func(lines ...string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.Join(lines, "")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(lines[0], lines[1][:40]+"\n", lines[2])
	r := sc.cli(1, "import", file)
	if !strings.Contains(r.stderr, "line 2") || !strings.Contains(r.stderr, "--skip 1") || !strings.Contains(r.stdout, "1 message imported") {
		t.Errorf("%s", r.all())
	}
	write(lines...)
	if d := sc.acted("import", "--skip", "1", file); d.Done != 2 || d.Action != "import" {
		t.Errorf("%+v", d)
	}
	if got := sc.listedIDs(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("%q", got)
	}
	sc.cli(0, "import", file, "--skip", "3")
	sc.cli(1, "import", file+".missing")
	if n := sc.ready(sc.dlq()); n != 3 {
		t.Errorf("%d parked", n)
	}
}

// TestDLQExportToAFile: it has its name once it is complete, belongs to its owner, and replaces nothing unasked.
func TestDLQExportToAFile(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	sc.parkIDs(503, "a", "b")
	dir := t.TempDir()
	file := filepath.Join(dir, "parked.jsonl")
	if r := sc.cli(0, "export", file); !strings.Contains(r.stdout, "2 of 2 messages exported") {
		t.Errorf("%s", r.all())
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	before, _ := os.ReadFile(file)
	sc.parkIDs(422, "c")
	if r := sc.cli(1, "export", file); !strings.Contains(r.stderr, "--force") {
		t.Errorf("%s", r.stderr)
	}
	if now, _ := os.ReadFile(file); string(now) != string(before) || strings.Count(string(now), "\n") != 2 {
		t.Errorf("%q", now)
	}
	if d := sc.acted("export", file, "--force", "--status", "422"); d.Done != 1 || d.Action != "export" {
		t.Errorf("%+v", d)
	}
	if now, _ := os.ReadFile(file); strings.Count(string(now), "\n") != 1 {
		t.Errorf("%q", now)
	}
	if r := sc.cli(0, "export", "--limit", "1"); strings.Count(r.stdout, "\n") != 1 || !strings.Contains(r.stderr, "1 of 3 messages exported") {
		t.Errorf("%s", r.all())
	}
	if r := sc.cli(0, "export", "-", "-q"); strings.Count(r.stdout, "\n") != 3 || r.stderr != "" {
		t.Errorf("%s", r.all())
	}
	sc.deleteQueue(sc.dlq())
	sc.cli(1, "export", filepath.Join(dir, "other"))
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}

// TestDLQWithoutAQueueOrABroker: one sentence, and soon.
func TestDLQWithoutAQueueOrABroker(t *testing.T) {
	t.Parallel()
	commands := [][]string{{"list"}, {"groups"}, {"show", "m"}, {"redrive", "--all"}, {"discard", "--all", "--yes"}, {"export"}, {"import"}, {"discard", "--all", "--yes"}}
	sc := newScene(t)
	for _, args := range commands {
		if r := sc.cli(1, args...); !strings.Contains(r.stderr, "the dead-letter queue does not exist: ") || !strings.Contains(r.stderr, sc.dlq()) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("no queue, %v: %q", args, r.stderr)
		}
	}
	sc.with("AMQP_URL", "amqp://u:canary-secret@"+freeAddr(t)+"/,amqp://u:canary-secret@"+freeAddr(t)+"/")
	for _, args := range commands {
		r := sc.cli(1, args...)
		if !strings.Contains(r.stderr, "the broker cannot be reached") || strings.Count(r.stderr, "\n") != 1 || strings.Contains(r.all(), "canary-secret") {
			t.Errorf("no broker, %v: %q", args, r.stderr)
		}
	}
	sc.with("AMQP_URL", "nonsense")
	if r := sc.cli(64, "list"); !strings.Contains(r.stderr, "SIDECAR_AMQP_URL") {
		t.Errorf("%q", r.stderr)
	}
	delete(sc.env, "SIDECAR_SERVICE")
	sc.cli(64, "list")
}

// TestDLQLeastPrivilege: what the plan asks for is enough.
func TestDLQLeastPrivilege(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	user := newAccount(t)
	user.least(sc.env)
	s := sc.with("AMQP_USERNAME", user.name, "AMQP_PASSWORD", "canary-password").run()
	sc.parkIDs(503, "a", "b", "c", "d")
	if got := sc.listedIDs(); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("%q", got)
	}
	exported := sc.cli(0, "export", "--id", "d").stdout
	sc.acted("discard", "d", "--yes")
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte(exported), 0o600); err != nil {
		t.Fatal(err)
	}
	sc.acted("import", file)
	if d := sc.acted("redrive", "--all", "--canary", "1"); d.Done != 4 || d.Canary.Good != 1 {
		t.Errorf("%+v", d)
	}
	eventually(t, "all taken", func() bool { return sc.app.total() == 4 })
	sc.settledAll(s, 0)
	sc.parkIDs(503, "e")
	user.may("^$", "^$", "^$")
	if r := sc.cli(1, "list"); !strings.Contains(r.stderr, "403") || strings.Contains(r.all(), "canary-password") {
		t.Errorf("%q", r.stderr)
	}
}
