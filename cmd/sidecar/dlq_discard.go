package main

import (
	"context"

	"sidecar/internal/deadletter"
)

func dlqDiscard(ctx context.Context, c *dlqCall) error {
	c.takesConditions()
	all := c.flags.Bool("all", false, "every message of this service")
	yes := c.flags.Bool("yes", false, "do not ask; needed where there is no terminal to ask on")
	dry := c.flags.Bool("dry-run", false, "count what would be deleted, delete nothing")
	c.count(&c.limit, "limit", "delete at most `N` messages; 0 = all that match (default 0)")
	if err := c.parse(-1); err != nil {
		return err
	}
	if err := c.ids(); err != nil {
		return err
	}
	switch {
	case *all && !c.filter.Empty():
		return c.misuse("--all and a condition contradict each other")
	case !*all && c.filter.Empty():
		return c.misuse("say which messages: by id, by conditions, or with --all; purge deletes everything")
	}
	return c.discard(ctx, action{"discard", "discarded", stays}, deadletter.Selection{Filter: c.filter, Limit: c.limit}, *dry, *yes)
}

func dlqPurge(ctx context.Context, c *dlqCall) error {
	yes := c.flags.Bool("yes", false, "do not ask; needed where there is no terminal to ask on")
	dry := c.flags.Bool("dry-run", false, "count what would be deleted, delete nothing")
	if err := c.parse(0); err != nil {
		return err
	}
	return c.discard(ctx, action{"purge", "deleted", stays}, deadletter.Selection{}, *dry, *yes)
}

// discard deletes what s selects, once somebody has said so.
func (c *dlqCall) discard(ctx context.Context, a action, s deadletter.Selection, dry, yes bool) error {
	ask := !dry && !yes
	if ask && !c.interactive() {
		return c.misuse("deletes messages for good: say so with --yes, or see with --dry-run how many; sidecar dlq export keeps a copy")
	}
	q, err := c.open()
	if err != nil {
		return err
	}
	if ask {
		p, err := q.Discard(ctx, s, true, nil)
		if err != nil || p.Matched == 0 {
			return c.report(ctx, q, a, false, &p, err)
		}
		if err := c.confirm(ctx, q, a, &p); err != nil {
			return err
		}
		s.Limit = p.Matched // what has been parked since was not asked about
	}
	m := c.meter(a.done, s.Limit)
	p, err := q.Discard(ctx, s, dry, m.report)
	m.stop()
	return c.report(ctx, q, a, dry, &p, err)
}
