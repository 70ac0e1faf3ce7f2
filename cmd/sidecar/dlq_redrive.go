package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sidecar/internal/deadletter"
)

// stays is what to do when a command ended before its end and what it has not done yet is where it was.
const stays = "the rest is still in the queue: run the same command again"

func dlqRedrive(ctx context.Context, c *call) error {
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
			return errors.New("want a duration such as 90s or 5m")
		}
		return nil
	})
	var err error
	if r.Selection, err = c.parseSelection("move"); err != nil {
		return err
	}
	q, err := c.open()
	if err != nil {
		return err
	}
	a := action{name: "redrive", done: "redriven", rest: stays, dry: r.DryRun}
	return c.act(ctx, q, a, r.Limit, func(report deadletter.Report) (deadletter.Progress, error) {
		return q.Redrive(ctx, r, report)
	})
}

func dlqDiscard(ctx context.Context, c *call) error {
	yes := c.flags.Bool("yes", false, "do not ask; needed where there is no terminal to ask on")
	dry := c.flags.Bool("dry-run", false, "count what would be deleted, delete nothing")
	s, err := c.parseSelection("delete")
	if err != nil {
		return err
	}
	ask := !*dry && !*yes
	_, readsTerminal := terminalWidth(c.stdin)
	_, showsTerminal := terminalWidth(c.stderr)
	if ask && (!readsTerminal || !showsTerminal) {
		return c.misuse("deletes messages permanently: say so with --yes, or see with --dry-run how many; sidecar dlq " +
			"export keeps a copy")
	}
	q, err := c.open()
	if err != nil {
		return err
	}
	a := action{name: "discard", done: "discarded", rest: stays, dry: *dry}
	if ask {
		p, err := q.Discard(ctx, s, true, nil)
		if err != nil || p.Matched == 0 {
			return c.report(ctx, q, a, &p, err)
		}
		if err := c.confirm(ctx, q, &p); err != nil {
			return err
		}
		s.Limit = p.Matched // what has been parked since was not asked about
	}
	return c.act(ctx, q, a, s.Limit, func(report deadletter.Report) (deadletter.Progress, error) {
		return q.Discard(ctx, s, *dry, report)
	})
}

// parseSelection reads the command line of an action, with flags for what it is to verb: ids, conditions or --all, and
// never none of them.
func (c *call) parseSelection(verb string) (s deadletter.Selection, err error) {
	c.takesConditions()
	c.flags.BoolVar(&c.all, "all", false, "every message of this service")
	c.count(&c.limit, "limit", verb+" at most `N` messages; 0 = all that match (default 0)")
	if err = c.parseDLQ(-1); err != nil {
		return s, err
	}
	for _, word := range c.words {
		c.condition("id", word)
	}
	switch {
	case c.wrong != nil:
		return s, c.wrong
	case c.all && !c.filter.Empty():
		return s, c.misuse("--all and a condition contradict each other")
	case !c.all && c.filter.Empty():
		return s, c.misuse("say which messages: by id, by conditions, or with --all")
	}
	return deadletter.Selection{Filter: c.filter, Limit: c.limit}, nil
}

// confirm wants the queue's name typed before anything is deleted. The name, because a yes is typed by habit.
func (c *call) confirm(ctx context.Context, q *deadletter.Queue, p *deadletter.Progress) error {
	_, _ = fmt.Fprintf(c.stderr, "%d of %s in %s would be discarded permanently. Type the queue's name to go on: ",
		p.Matched, number(p.Total, "message"), q.Name())
	typed, _ := bufio.NewReader(interruptible(ctx, c.stdin)).ReadString('\n')
	switch {
	case strings.TrimSpace(typed) == q.Name():
		return nil
	case ctx.Err() != nil:
		_, _ = fmt.Fprintln(c.stderr)
		return c.failed(ctx.Err(), "stopped by a signal: nothing was discarded")
	}
	return c.failed(nil, "wrong queue name: nothing was discarded")
}
