package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"sidecar/internal/outbox"
)

// pruneAge is how long rows that were sent are kept where nothing says otherwise: a week, as long as one may want to look.
const pruneAge = 7 * 24 * time.Hour

func outboxPrune(ctx context.Context, c *outboxCall) error {
	c.takesJSON()
	var older time.Duration
	c.flags.Func("older-than", "`AGE` of the rows to delete, by the time they were sent (default: SIDECAR_OUTBOX_RETENTION, else 168h)", func(value string) (err error) {
		if older, err = time.ParseDuration(value); err != nil || older <= 0 {
			return errors.New("want a duration such as 168h")
		}
		return nil
	})
	if err := c.parse(0); err != nil {
		return err
	}
	older = cmp.Or(older, c.cfg.Outbox.Retention, pruneAge)
	return c.table(ctx, func(conn *outbox.Conn, t *outbox.Table) error {
		done, err := outbox.Prune(ctx, conn, t, older, nil)
		if err != nil && done.Deleted == 0 {
			return err
		}
		if c.json {
			return errors.Join(err, c.document(done))
		}
		return errors.Join(err, c.say("%d of %s deleted: sent more than %s ago", done.Deleted, number(int(done.Scanned), "row"), older))
	})
}
