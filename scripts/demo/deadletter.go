package main

import (
	"context"
	"strings"
)

// bringBack shows what is parked, and moves it back into the flow with the command an operator would type. The app has
// been repaired by then: its next answer is 200.
func (s *stage) bringBack(ctx context.Context, orders []*order, app, sidecar *follower) error {
	if err := s.dlq(ctx, "list"); err != nil {
		return err
	}
	// The canary: the command waits until the sidecar has said the outcome of the message.
	if err := s.dlq(ctx, "redrive", "--all", "--canary", "1"); err != nil {
		return err
	}
	return s.follow(ctx, orders, app, sidecar)
}

// dlq runs a command on the dead-letter queue and shows it with what it prints.
func (s *stage) dlq(ctx context.Context, args ...string) error {
	args = append([]string{"dlq"}, args...)
	s.screen.say(s.screen.paint(strong, "$ sidecar "+strings.Join(args, " ")))
	out, err := output(ctx, environment(s.options, s.app.address), append([]string{s.options.sidecar}, args...)...)
	s.screen.say(strings.TrimSuffix(string(out), "\n"))
	return err
}
