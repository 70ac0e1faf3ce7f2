package main

import (
	"context"
)

func dlqDiscard(ctx context.Context, c *dlqCall) error {
	c.takesSelection("delete")
	yes := c.flags.Bool("yes", false, "do not ask; needed where there is no terminal to ask on")
	dry := c.flags.Bool("dry-run", false, "count what would be deleted, delete nothing")
	s, err := c.parseSelection()
	if err != nil {
		return err
	}
	a, ask := action{"discard", "discarded", stays}, !*dry && !*yes
	if ask && !c.interactive() {
		return c.misuse("deletes messages permanently: say so with --yes, or see with --dry-run how many; sidecar dlq " +
			"export keeps a copy")
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
	p, err := q.Discard(ctx, s, *dry, m.report)
	m.stop()
	return c.report(ctx, q, a, *dry, &p, err)
}
