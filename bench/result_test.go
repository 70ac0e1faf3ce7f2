package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// TestCommit: what a run with -docs has written does not make the commit another one; everything else does.
func TestCommit(t *testing.T) {
	t.Chdir(t.TempDir())
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "git",
			append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	must.Do(t, os.Mkdir("docs", 0o700))
	must.Do(t, os.Mkdir("bench", 0o700))
	files := []string{"main.go", "docs/performance.md", "bench/result.json"}
	write := func(name, text string) { must.Do(t, os.WriteFile(name, []byte(text), 0o600)) }
	for _, name := range files {
		write(name, "before")
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "begin")
	name := git("rev-parse", "--short", "HEAD")
	for i, want := range []string{name + "-dirty", name, name} {
		write(files[i], "after")
		if got := commit(t.Context()); got != want {
			t.Errorf("%s has changed: %s, want %s", files[i], got, want)
		}
		write(files[i], "before")
	}
}
