//go:build kubernetes

// Package inject tests deploy/inject against a real API server: pods go through its admission as dry runs, and the
// configuration that comes out goes through the real binary. It needs no node.
package inject

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	deploy = "../../../deploy/inject"
	binary = "../../../bin/sidecar"
)

// api is the API server behind kubectl proxy, which keeps the credentials. The host is not checked.
var api = &http.Client{Timeout: 30 * time.Second}

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	if os.Getenv("KUBECONFIG") == "" {
		return 1, fmt.Errorf("KUBECONFIG is not set: run this through scripts/kube.sh")
	}
	if os.Getenv("E2E_HELM4") == "" {
		return 1, fmt.Errorf("E2E_HELM4 is not set: scripts/helm.sh 4 prints it")
	}
	if _, err := os.Stat(binary); err != nil {
		return 1, fmt.Errorf("no bin/sidecar: make build: %w", err)
	}
	stop, err := proxy()
	if err != nil {
		return 1, err
	}
	defer stop()
	if _, err := kubectl("", "apply", "-k", deploy); err != nil {
		return 1, err
	}
	if err := prepare(); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// proxy starts kubectl proxy on a socket and points api at it.
func proxy() (stop func(), err error) {
	dir, err := os.MkdirTemp("", "inject")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "api.sock")
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "kubectl", "proxy", "--unix-socket="+socket, "--reject-methods=^$", "--reject-paths=^$")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	stop = func() {
		cancel()
		_ = cmd.Wait() // it was killed, and says so
		_ = os.RemoveAll(dir)
	}
	api.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	return stop, eventually(func() error {
		_, err := call(http.MethodGet, "/readyz", nil)
		return err
	})
}

// kubectl runs it and returns what it printed.
func kubectl(input string, args ...string) (string, error) {
	cmd := exec.Command("kubectl", args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// eventually repeats what the cluster may need a moment for.
func eventually(try func() error) error {
	deadline := time.Now().Add(time.Minute)
	for {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// prepare makes the namespace of the tests and waits until both policies are at work in it.
func prepare() error {
	if _, err := kubectl(fixtures, "apply", "-f", "-"); err != nil {
		return err
	}
	return eventually(func() error {
		if _, err := kubectl("", "wait", "--for=create", "serviceaccount/default", "-n", strict, "--timeout=30s"); err != nil {
			return err
		}
		got, err := ask(pod(usual, one))
		if err != nil {
			return err
		}
		if got.find("sidecar") == nil {
			return fmt.Errorf("not injected yet")
		}
		if _, err := ask(pod(settings{}, one)); err == nil {
			return fmt.Errorf("not checked yet")
		}
		return nil
	})
}
