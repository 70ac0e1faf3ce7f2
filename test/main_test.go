// Package test holds black-box tests: they build the sidecar, start it as a user would (environment only), and look at
// it from outside: HTTP, AMQP, signals, exit codes, log lines. The package imports nothing of the product, so a test
// here fails only when a promise to a user is broken.
//
//	AMQP_URL            a RabbitMQ of which the tests may declare and delete objects; required
//	BROKER_CTL          a rabbitmqctl for that broker; required
//	BROKER_DIR          where scripts/broker.sh keeps that broker; required
//	SIDECAR_BIN         test this binary instead of building one
//	SIDECAR_TEST_RACE=1 build the sidecar with the race detector
package test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var (
	program   string // the sidecar under test
	workDir   string // removed at the end
	brokerURL string // AMQP_URL
	brokerCtl string // BROKER_CTL
	brokerDir string // BROKER_DIR
	raceBuild = os.Getenv("SIDECAR_TEST_RACE") != ""
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(mortalAddr); addr != "" {
		os.Exit(serveMortally(addr))
	}
	if addr := os.Getenv(appProcessEnv); addr != "" {
		os.Exit(runAppProcess(addr))
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	brokerURL, brokerCtl, brokerDir = os.Getenv("AMQP_URL"), os.Getenv("BROKER_CTL"), os.Getenv("BROKER_DIR")
	if brokerURL == "" || brokerCtl == "" || brokerDir == "" {
		fmt.Fprintln(os.Stderr, "AMQP_URL, BROKER_CTL or BROKER_DIR is not set: these tests need a real RabbitMQ, run them below scripts/broker.sh run 0 …")
		return 1
	}
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
	moreParallel()
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

// moreParallel raises the default of one test per CPU: these tests wait for retry queues far more than they compute.
func moreParallel() {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", "8")
	}
}
