package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"
)

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
	l, err := newLocal("SIDECAR_CONTROL_ADDR", cfg.Listen.ControlAddr, token, healthTimeout)
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
		// No answer says nothing: the process may be ending at this moment, or have no CPU. A hook that fails ends the pod early.
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
