package main

import (
	"context"
	"fmt"
	"strings"

	"sidecar/internal/outbox"
)

func outboxMigrate(ctx context.Context, c *outboxCall) error {
	dry := c.flags.Bool("print", false, "write the SQL to standard output and change nothing; needs no right but to connect")
	quiet := c.flags.Bool("no-notify", false, "without the trigger that wakes the relay up, which then looks every SIDECAR_OUTBOX_POLL_INTERVAL; removes it where it is")
	if err := c.parse(0); err != nil {
		return err
	}
	conn, err := c.connect(ctx)
	if err != nil {
		return c.failed(ctx, err)
	}
	defer outbox.Close(conn)
	if *dry {
		m, err := outbox.PlanMigration(ctx, conn, c.names, !*quiet)
		if err == nil {
			err = m.Print(c.stdout)
		}
		return c.failed(ctx, err)
	}
	m, err := outbox.Migrate(ctx, conn, c.names, !*quiet, func(sql string) {
		first, _, _ := strings.Cut(sql, "\n")
		_, _ = fmt.Fprintln(c.stderr, printable(strings.TrimSuffix(first, " (")))
	})
	if err != nil {
		return c.failed(ctx, err)
	}
	switch {
	case m.Done():
		return c.say("table %s is complete: nothing to do", &m.Table)
	case m.Create:
		return c.say("table %s was made", &m.Table)
	}
	return c.say("table %s has what was missing: %s", &m.Table, number(len(m.Inside)+len(m.Outside), "statement"))
}
