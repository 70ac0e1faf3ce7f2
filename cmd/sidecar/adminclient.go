package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// maxAnswer bounds what is read of a local answer, in bytes.
const maxAnswer = 64 << 10

// askTimeout bounds one request. On a busy node an answer of a few bytes has taken more than three seconds.
const askTimeout = 10 * time.Second

// adminClient asks the sidecar that runs beside this process.
type adminClient struct {
	variable string // that holds the address, for errors
	address  string // as configured
	token    string
}

// ask returns the answer's status and body.
func (a *adminClient) ask(ctx context.Context, method, path string) (int, []byte, error) {
	if strings.HasSuffix(a.address, ":0") {
		return 0, nil, fmt.Errorf("%s has port 0: a port chosen at start cannot be found from here", a.variable)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+a.address+path, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w", a.variable, err)
	}
	r.Host = "localhost" // an address without a host, or with 0.0.0.0, is dialed as this machine but is no name for it
	if a.token != "" {
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	client := http.Client{
		Timeout:       askTimeout,
		Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, nil, fmt.Errorf("ask the sidecar at %s: %w: start it, or set %s to the address that it logs as listening",
			a.address, err, a.variable)
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
func drain(c *call) execution {
	return func(ctx context.Context) error {
		cfg, err := c.load()
		if err != nil {
			return err
		}
		token, err := cfg.Listen.ControlToken.Value()
		if err != nil {
			return err
		}
		a := adminClient{"SIDECAR_CONTROL_ADDR", cfg.Listen.ControlAddr, token}
		status, body, err := a.ask(ctx, http.MethodPost, "/drain")
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
		for s := struct{ State string }{"draining"}; ; {
			status, body, err := a.ask(ctx, http.MethodGet, "/status")
			switch {
			case errors.Is(err, syscall.ECONNREFUSED): // it has drained and ended meanwhile
				s.State = "stopped"
			case err != nil:
				// No answer says nothing: the process may be ending at this moment, or have no CPU. A hook that fails ends the
				// pod early.
			case status != http.StatusOK:
				return fmt.Errorf("status refused with status %d: %s", status, body)
			default:
				if err := json.Unmarshal(body, &s); err != nil {
					return fmt.Errorf("read the sidecar's status: %w", err)
				}
			}
			if s.State == "stopped" || s.State == "drained" {
				_, err := fmt.Fprintln(c.stdout, s.State)
				return err
			}
			select {
			case <-t.C:
			case <-ctx.Done():
				return fmt.Errorf("still %s after the grace", s.State)
			}
		}
	}
}

var healthPaths = map[string]string{"live": "/livez", "ready": "/readyz", "startup": "/startupz"}

// health is the exec probe for images without a shell.
func health(c *call) execution {
	c.takesWord("live", "ready", "startup")
	return func(ctx context.Context) error {
		probe := cmp.Or(append(c.words, "ready")...)
		path, ok := healthPaths[probe]
		if !ok {
			return c.misuse("%q is not one of live, ready, startup", probe)
		}
		cfg, err := loadConfig(c.environ)
		if err != nil {
			return err
		}
		a := adminClient{"SIDECAR_ADMIN_ADDR", cfg.Listen.AdminAddr, ""}
		status, body, err := a.ask(ctx, http.MethodGet, path)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintln(c.stdout, strings.TrimSpace(string(body)))
		if status != http.StatusOK {
			return fmt.Errorf("not %s: status %d", probe, status)
		}
		return nil
	}
}
