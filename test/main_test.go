// Package test holds black-box tests: they build the sidecar, start it as a user would (environment only), and check
// it from outside: HTTP, AMQP, signals, exit codes, log lines. The package imports nothing of the product, so a test
// here fails only when a promise to a user is broken.
//
//	AMQP_URL, BROKER_*  the broker of scripts/broker.sh (internal/brokertest); required
//	SIDECAR_BIN         test this binary instead of building one
//	SIDECAR_TEST_RACE=1 build the sidecar with the race detector
package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sidecar/internal/testkit/must"
)

// script runs one of the project's scripts in dir and returns what it printed, and whether it succeeded.
func script(t *testing.T, dir, name string, args ...string) (out string, ok bool) {
	t.Helper()
	path := must.Get(filepath.Abs(filepath.Join("..", "scripts", name)))(t)
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = dir
	raw, err := cmd.CombinedOutput()
	return string(raw), err == nil
}

// TestWords: a text or a file name with a refused word fails the lint, with the word to use instead; others pass.
func TestWords(t *testing.T) {
	t.Parallel()
	for text, better := range map[string]string{
		"// the relay te" + "lls the app":              "report",
		"some" + "body else has the lock":              "another process",
		"What " + "became of the message is logged.":   "the outcome of",
		"func TestSome" + "bodyElseHasTheLock() {":     "in a name too",
		"A message that is in flight may be requeued.": "",
	} {
		file := filepath.Join(t.TempDir(), "page.md")
		must.Do(t, os.WriteFile(file, []byte(text+"\n"), 0o600))
		out, ok := script(t, ".", "words.sh", file)
		if ok != (better == "") || !strings.Contains(out, better) || !ok && !strings.Contains(out, "page.md:1:") {
			t.Errorf("%q: passed: %v, want %q in\n%s", text, ok, better, out)
		}
	}
	file := filepath.Join(t.TempDir(), "bytes-"+"of-others.md")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	if out, ok := script(t, ".", "words.sh", file); ok || !strings.Contains(out, "received data: the file name") {
		t.Errorf("a file name passed: %v\n%s", ok, out)
	}
}

// repository is a new one with one commit, and git in it.
func repository(t *testing.T) (dir string, git func(args ...string) string) {
	t.Helper()
	dir = t.TempDir()
	git = func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "begin")
	return dir, git
}

// TestMeasured: the lint warns of figures that are too many commits old, and of none where it cannot know.
func TestMeasured(t *testing.T) {
	t.Parallel()
	dir, git := repository(t)
	commit := git("rev-parse", "--short", "HEAD")
	page := filepath.Join(dir, "page.md")
	must.Do(t, os.WriteFile(page, []byte("Measured 2026-01-31 at "+commit+"-dirty, go1.26, on this.\n"+
		"Measured 2026-01-31 at 0123abc, of another history.\n"), 0o600))
	warns := func(in, want string) {
		t.Helper()
		out, ok := script(t, in, "measured.sh", page, "2")
		if !ok || (want == "") != (out == "") || !strings.Contains(out, want) {
			t.Errorf("passed: %v, want %q in\n%s", ok, want, out)
		}
	}
	for range 2 {
		git("commit", "-q", "--allow-empty", "-m", "more")
		warns(dir, "")
	}
	git("commit", "-q", "--allow-empty", "-m", "more")
	warns(dir, "has figures of "+commit+", 3 commits ago")
	shallow := filepath.Join(t.TempDir(), "shallow")
	git("clone", "-q", "--depth", "1", "file://"+dir, shallow)
	warns(shallow, "")
	warns(t.TempDir(), "")
}

// TestCommits: what the lint says of a commit by its message.
func TestCommits(t *testing.T) {
	t.Parallel()
	dir, git := repository(t)
	for message, want := range map[string]string{
		"broker: name the exchange\n\nThe error did not.":                      "",
		"broker: process returns\n\nThey were dropped.":                        "",
		"broker: name the exchange":                                            "no body",
		"broker: name the exchange\n\nSigned-off-by: t <t@example.com>":        "no body",
		"broker: named the exchange\n\nWhy.":                                   "not imperative",
		"broker: names the exchange\n\nWhy.":                                   "not imperative",
		"broker: name the exchange.\n\nWhy.":                                   "full stop",
		"name the exchange\n\nWhy.":                                            "package: do this",
		"broker: name the exchange " + strings.Repeat("x", 60) + "\n\nWhy.":    "at most 72",
		"broker, publish: name the exchange and its queue\n\nNeither was said": "",
	} {
		git("commit", "-q", "--allow-empty", "-m", message)
		out, ok := script(t, dir, "commits.sh", "HEAD~1..HEAD")
		if ok != (want == "") || !strings.Contains(out, want) {
			t.Errorf("%q: passed: %v, want %q in\n%s", message, ok, want, out)
		}
	}
}

var (
	program   string // the sidecar under test
	workDir   string // removed at the end
	raceBuild = os.Getenv("SIDECAR_TEST_RACE") != ""
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(appProcessEnv); addr != "" {
		os.Exit(runAppProcess(addr))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	workDir, err = os.MkdirTemp("", "sidecar-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(workDir) }()

	program = os.Getenv("SIDECAR_BIN")
	if program == "" {
		program = filepath.Join(workDir, "sidecar")
		if err := build(program, raceBuild); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

func build(out string, race bool) error {
	args := []string{"build", "-trimpath", "-tags", "nethttpomithttp2", "-ldflags", "-s -w", "-o", out} // as the Makefile does
	env := append(os.Environ(), "CGO_ENABLED=0")
	if race {
		args, env = []string{"build", "-race", "-o", out}, os.Environ()
	}
	cmd := exec.Command("go", append(args, "../cmd/sidecar")...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build the sidecar: %w", err)
	}
	return nil
}

// shipped is the binary without the race detector, which is what sizes are promised for. It also starts in a fraction
// of the time: for tests that start many.
func shipped(t *testing.T) string {
	t.Helper()
	if !raceBuild {
		return program
	}
	out := must.Get(buildShipped())(t)
	return out
}

var buildShipped = sync.OnceValues(func() (string, error) {
	out := filepath.Join(workDir, "sidecar-shipped")
	return out, build(out, false)
})

// TestBinarySize: 16 MiB, stripped as it is shipped.
func TestBinarySize(t *testing.T) {
	t.Parallel()
	info := must.Get(os.Stat(shipped(t)))(t)
	t.Logf("%.1f MiB", float64(info.Size())/(1<<20))
	if info.Size() > 16<<20 {
		t.Errorf("the binary has %.1f MiB, the limit is 16", float64(info.Size())/(1<<20))
	}
}
