// Package console tests the console as people meet it: the built binary, a real broker, a real app, and the page in a
// real browser. It checks what is on the screen and presses keys; it imports nothing of the product.
//
//	AMQP_URL, BROKER_CTL  a RabbitMQ of which the tests may declare and delete objects; required
//	CONSOLE_BROWSER       path of a Chromium; required
//	CONSOLE_AXE           path of axe.min.js (scripts/axe.sh prints it); required
//	CONSOLE_SCREENSHOTS   directory of the pictures; when unset, only failed tests make one, in test/console/screenshots
//	SIDECAR_BIN           test this binary instead of building one
//	SIDECAR_TEST_RACE=1   build the sidecar with the race detector
package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// patience is how long a test waits for something that must happen. It bounds a failing run and is no claim about
// speed.
const patience = 4 * time.Minute

var (
	program string          // the sidecar under test
	shots   string          // directory of the pictures, or ""
	axe     string          // source of axe-core
	chrome  context.Context // the browser that all tests share; each has a profile of its own in it
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sidecar-console-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		err = prepare(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var stop func()
	if chrome, stop, err = startBrowser(filepath.Join(dir, "profile")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	return m.Run()
}

func startBrowser(profile string) (browser context.Context, stop func(), err error) {
	path := os.Getenv("CONSOLE_BROWSER")
	if path == "" {
		return nil, nil, errors.New("CONSOLE_BROWSER is not set: these tests need a real Chromium, run them with scripts/test.sh")
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
	)...)
	browser, cancel := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {}))
	stop = func() {
		cancel()
		end()
	}
	if err := chromedp.Do(browser); err != nil {
		stop()
		return nil, nil, fmt.Errorf("start the browser: %w", err)
	}
	return browser, stop, nil
}

func prepare(dir string) error {
	if os.Getenv("AMQP_URL") == "" || os.Getenv("BROKER_CTL") == "" {
		return fmt.Errorf("AMQP_URL or BROKER_CTL is not set: run the tests with scripts/test.sh")
	}
	source, err := os.ReadFile(os.Getenv("CONSOLE_AXE"))
	if err != nil {
		return fmt.Errorf("CONSOLE_AXE, where scripts/axe.sh says that axe is: %w", err)
	}
	axe = string(source)
	shots = os.Getenv("CONSOLE_SCREENSHOTS")
	if program = os.Getenv("SIDECAR_BIN"); program != "" {
		return nil
	}
	program = filepath.Join(dir, "sidecar")
	args, env := []string{"build", "-trimpath", "-tags", "nethttpomithttp2", "-o", program}, append(os.Environ(), "CGO_ENABLED=0")
	if os.Getenv("SIDECAR_TEST_RACE") != "" {
		args, env = []string{"build", "-race", "-o", program}, os.Environ()
	}
	cmd := exec.Command("go", append(args, "../../cmd/sidecar")...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build the sidecar: %w", err)
	}
	return nil
}
