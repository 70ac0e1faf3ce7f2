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
	"sync"
	"testing"

	"sidecar/internal/testkit/must"
)

var (
	program   string // the sidecar under test
	workDir   string // removed at the end
	raceBuild = os.Getenv("SIDECAR_TEST_RACE") != ""
)

func TestMain(m *testing.M) {
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
