package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sidecar/internal/deadletter"
)

// stays is what to do when a command ended before its end and what it has not done yet is where it was.
const stays = "the rest is still in the queue: run the same command again"

func dlqRedrive(ctx context.Context, c *dlqCall) error {
	c.takesSelection("move")
	r := deadletter.Redrive{CanaryTimeout: time.Minute}
	c.count(&r.Canary, "canary", "send `N` first and wait for their verdicts; go on only when all were acked")
	c.flags.BoolVar(&r.DryRun, "dry-run", false, "count what would be moved, move nothing")
	c.flags.BoolVar(&r.Reset, "reset", false, "full fresh attempts. Without it the count goes on: one try, then parked "+
		"again")
	c.flags.Func("rate", "at most so many per second, minute or hour: 20/s, 100/m", func(v string) (err error) {
		r.Rate, err = deadletter.ParseRate(v)
		return plainly(err)
	})
	c.flags.Func("canary-timeout", "how long to wait for all verdicts together, beside the time a retry waits (default "+
		"1m)", func(v string) (err error) {
		if r.CanaryTimeout, err = time.ParseDuration(v); err != nil || r.CanaryTimeout <= 0 {
			return fmt.Errorf("want a duration such as 90s or 5m")
		}
		return nil
	})
	var err error
	if r.Selection, err = c.parseSelection(); err != nil {
		return err
	}
	q, err := c.open()
	if err != nil {
		return err
	}
	m := c.meter("redriven", r.Limit)
	p, err := q.Redrive(ctx, r, m.report)
	m.stop()
	return c.report(ctx, q, action{"redrive", "redriven", stays}, r.DryRun, &p, err)
}

// plainly is an error without the mark of what kind it is.
func plainly(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), deadletter.ErrInvalid.Error()+": "))
}
