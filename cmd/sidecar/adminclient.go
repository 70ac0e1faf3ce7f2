package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// maxAnswer bounds what is read of a local answer, in bytes.
const maxAnswer = 64 << 10

// adminClient asks the sidecar that runs beside this process.
type adminClient struct {
	variable string // that holds the address, for errors
	address  string
	token    string
	client   http.Client
}

func newAdminClient(variable, address, token string, timeout time.Duration) (*adminClient, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	if port == "0" {
		return nil, fmt.Errorf("%s has port 0: a port chosen at start cannot be found from here", variable)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if err == nil && ip.Is6() {
			host = "::1"
		}
	}
	return &adminClient{
		variable: variable, address: net.JoinHostPort(host, port), token: token,
		client: http.Client{
			Timeout:   timeout,
			Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
		},
	}, nil
}

// ask returns the answer's status and body.
func (a *adminClient) ask(ctx context.Context, method, path string) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+a.address+path, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w", a.variable, err)
	}
	if a.token != "" {
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	answer, err := a.client.Do(r)
	if err != nil {
		return 0, nil, fmt.Errorf("ask the sidecar at %s (%s): %w", a.address, a.variable, err)
	}
	defer answer.Body.Close() //nolint:errcheck // nothing is left to do about it
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return 0, nil, fmt.Errorf("read the sidecar's answer: %w", err)
	}
	return answer.StatusCode, body, nil
}

// drainMargin is how much longer than the grace drain waits: the sidecar needs a moment after its grace to give the
// rest back and to settle it.
const drainMargin = 10 * time.Second

const drainPoll = 100 * time.Millisecond

// drain asks the running sidecar to drain and waits until it has: for a preStop hook.
func drain(ctx context.Context, in invocation) error {
	cfg, err := in.load("drain")
	if err != nil {
		return err
	}
	token, err := cfg.Listen.ControlToken.Value()
	if err != nil {
		return err
	}
	l, err := newAdminClient("SIDECAR_CONTROL_ADDR", cfg.Listen.ControlAddr, token, healthTimeout)
	if err != nil {
		return err
	}
	status, body, err := l.ask(ctx, http.MethodPost, "/drain")
	if err != nil {
		return err
	}
	if status/100 != 2 {
		return fmt.Errorf("drain refused with status %d: %s", status, body)
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Process.ShutdownGrace+drainMargin)
	defer cancel()
	t := time.NewTicker(drainPoll)
	defer t.Stop()
	for state := "draining"; ; {
		code, body, err := l.ask(ctx, http.MethodGet, "/status")
		if errors.Is(err, syscall.ECONNREFUSED) { // it has drained and ended meanwhile
			_, err := fmt.Fprintln(in.stdout, "stopped")
			return err
		}
		// No answer says nothing: the process may be ending at this moment, or have no CPU. A hook that fails ends the pod
		// early.
		if err == nil {
			if state, err = drainState(code, body); err != nil {
				return err
			}
		}
		if state == "drained" {
			_, err := fmt.Fprintln(in.stdout, state)
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("still %s after the grace", state)
		}
	}
}

func drainState(code int, body []byte) (string, error) {
	if code != http.StatusOK {
		return "", fmt.Errorf("status refused with status %d: %s", code, body)
	}
	var s struct{ State string }
	if err := json.Unmarshal(body, &s); err != nil {
		return "", fmt.Errorf("read the sidecar's status: %w", err)
	}
	return s.State, nil
}

const healthTimeout = 3 * time.Second

var healthPaths = map[string]string{"live": "/livez", "ready": "/readyz", "startup": "/startupz"}

// health is the exec probe for images without a shell.
func health(ctx context.Context, in invocation) error {
	flags := flag.NewFlagSet("health", flag.ContinueOnError)
	if err := in.parse(flags, 1); err != nil {
		return err
	}
	probe := flags.Arg(0)
	if probe == "" {
		probe = "ready"
	}
	path, ok := healthPaths[probe]
	if !ok {
		return fmt.Errorf("%w: health: %q is not one of live, ready, startup", errUsage, probe)
	}
	cfg, err := loadConfig(in.environ)
	if err != nil {
		return err
	}
	l, err := newAdminClient("SIDECAR_ADMIN_ADDR", cfg.Listen.AdminAddr, "", healthTimeout)
	if err != nil {
		return err
	}
	status, body, err := l.ask(ctx, http.MethodGet, path)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(in.stdout, strings.TrimSpace(string(body)))
	if status != http.StatusOK {
		return fmt.Errorf("not %s: status %d", probe, status)
	}
	return nil
}
