package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sidecar/internal/outbox"
)

func outboxStatus(ctx context.Context, c *outboxCall) error {
	c.takesJSON()
	if err := c.parse(0); err != nil {
		return err
	}
	conn, err := c.connect(ctx)
	if err != nil {
		return c.failed(ctx, err)
	}
	defer outbox.Close(conn)
	s, err := outbox.ReadStatus(ctx, conn, c.names)
	if err != nil {
		return c.failed(ctx, err)
	}
	if c.json {
		return c.document(s)
	}
	return c.printStatus(s)
}

func (c *outboxCall) printStatus(s *outbox.Status) error {
	notify := "inserts wake the relay up"
	if !s.Notify {
		notify = "off: the relay checks every " + c.cfg.Outbox.PollInterval.String()
	}
	_, err := fmt.Fprintf(c.stdout, "table        %s\npending      %s, %d of them due later, %d failed before\nlag      "+
		"    %s\nquarantined  %s\nnotify       %s\n",
		printable(s.Table), atMost(s.Pending), s.Waiting, s.Failing,
		time.Duration(s.Lag*float64(time.Second)).Round(10*time.Millisecond), atMost(s.Quarantined), notify)
	if s.Hidden {
		_, _ = fmt.Fprintln(c.stdout, "policies     row level security may hide rows from this role: those are not counted "+
			"here, and a relay with this role never sends them")
	}
	for _, m := range s.Missing {
		first, _, _ := strings.Cut(m, "\n")
		_, _ = fmt.Fprintln(c.stdout, "missing      "+printable(first)+" (sidecar outbox migrate)")
	}
	if err != nil || len(s.Rows) == 0 {
		return err
	}
	_, _ = fmt.Fprintln(c.stdout)
	t, now := &table{w: c.stdout, columns: []column{{title: "QUARANTINED ROW"}, {title: "ATTEMPTS", right: true},
		{title: "SINCE"}, {title: "LAST ERROR"}}}, time.Now()
	for _, r := range s.Rows {
		if err := t.add(r.ID, strconv.Itoa(r.Attempts), ago(r.Since, now), r.Error); err != nil {
			return err
		}
	}
	return t.flush()
}

// atMost is a number of rows, which are counted up to a limit.
func atMost(n int) string {
	if n >= outbox.StatusLimit {
		return "at least " + strconv.Itoa(n)
	}
	return strconv.Itoa(n)
}

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

// pruneAge is how long sent rows are kept by default: a week to inspect them.
const pruneAge = 7 * 24 * time.Hour

func outboxPrune(ctx context.Context, c *outboxCall) error {
	c.takesJSON()
	var older time.Duration
	c.flags.Func("older-than", "`AGE` of the rows to delete, by the time they were sent (default: "+
		"SIDECAR_OUTBOX_RETENTION, else 168h)", func(value string) (err error) {
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
		return errors.Join(err, c.say("%d of %s deleted: sent more than %s ago", done.Deleted,
			number(int(done.Scanned), "row"), older))
	})
}

func outboxMigrate(ctx context.Context, c *outboxCall) error {
	dry := c.flags.Bool("print", false, "write the SQL to standard output and change nothing; needs no right but to "+
		"connect")
	quiet := c.flags.Bool("no-notify", false, "without the trigger that wakes the relay up, which then checks every "+
		"SIDECAR_OUTBOX_POLL_INTERVAL; removes it where it is")
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
