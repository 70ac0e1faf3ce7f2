package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sidecar/internal/outbox"
)

func outboxRetry(ctx context.Context, c *outboxCall) error {
	c.takesJSON()
	all := c.flags.Bool("all", false, "every row that is in quarantine")
	if err := c.parse(-1); err != nil {
		return err
	}
	if *all == (len(c.words) > 0) {
		return c.misuse("want the ids of rows, or --all")
	}
	return c.table(ctx, func(conn *outbox.Conn, t *outbox.Table) error {
		var done outbox.Released
		var err error
		if *all {
			done, err = outbox.RetryAll(ctx, conn, t)
		} else {
			done, err = outbox.Retry(ctx, conn, t, c.words)
		}
		if errors.Is(err, outbox.ErrID) {
			return c.misuse("%w", err)
		}
		if err != nil && done.Released == 0 {
			return err
		}
		if c.json {
			err = errors.Join(err, c.document(done))
		} else {
			err = errors.Join(err, c.say("%s released", number(int(done.Released), "row")))
		}
		if err == nil && len(done.Missing) > 0 {
			err = fmt.Errorf("not in quarantine: %s; sidecar outbox status lists what is", strings.Join(done.Missing, ", "))
		}
		return err
	})
}
