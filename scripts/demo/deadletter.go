package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// bringBack shows what is parked, and moves it back into the flow with the command an operator would type. The app has been
// repaired by then: its next answer is 200.
func (s *stage) bringBack(ctx context.Context, orders []*order, app, sidecar *follower) error {
	if err := s.dlq(ctx, "list"); err != nil {
		return err
	}
	// The canary: the command waits until the sidecar has said what became of the message.
	if err := s.dlq(ctx, "redrive", "--canary", "1"); err != nil {
		return err
	}
	return s.follow(ctx, orders, app, sidecar)
}

// dlq runs a command on the dead-letter queue and shows it with what it prints.
func (s *stage) dlq(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	args = append([]string{"dlq"}, args...)
	cmd := exec.CommandContext(ctx, s.options.sidecar, args...)
	cmd.Env = environment(s.options, s.app.address)
	s.screen.say(s.screen.paint(strong, "$ sidecar "+strings.Join(args, " ")))
	out, err := cmd.Output()
	s.screen.say(strings.TrimSuffix(string(out), "\n"))
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	if err != nil {
		return fmt.Errorf("sidecar %s: %w", strings.Join(args, " "), err)
	}
	return nil
}
