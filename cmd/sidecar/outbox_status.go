package main

import (
	"context"
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
		notify = "off: the relay looks every " + c.cfg.Outbox.PollInterval.String()
	}
	_, err := fmt.Fprintf(c.stdout, "table        %s\npending      %s, %d of them due later, %d failed before\nlag          %s\nquarantined  %s\nnotify       %s\n",
		printable(s.Table), atMost(s.Pending), s.Waiting, s.Failing, time.Duration(s.Lag*float64(time.Second)).Round(10*time.Millisecond), atMost(s.Quarantined), notify)
	if s.Hidden {
		_, _ = fmt.Fprintln(c.stdout, "policies     row level security may hide rows from this role: those are not counted here, and a relay with this role never sends them")
	}
	for _, m := range s.Missing {
		first, _, _ := strings.Cut(m, "\n")
		_, _ = fmt.Fprintln(c.stdout, "missing      "+printable(first)+" (sidecar outbox migrate)")
	}
	if err != nil || len(s.Rows) == 0 {
		return err
	}
	_, _ = fmt.Fprintln(c.stdout)
	t, now := &table{w: c.stdout, columns: []column{{title: "QUARANTINED ROW"}, {title: "ATTEMPTS", right: true}, {title: "SINCE"}, {title: "LAST ERROR"}}}, time.Now()
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
