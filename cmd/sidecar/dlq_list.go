package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sidecar/internal/deadletter"
)

var listColumns = []column{
	{title: "REF"}, {title: "PARKED"}, {title: "REASON", colour: yellow}, {title: "STATUS/ERROR", least: 12},
	{title: "RETRIES", right: true, rank: 3}, {title: "REDRIVEN", right: true, rank: 2},
	{title: "ROUTING KEY", least: 8, rank: 4}, {title: "SIZE", right: true, rank: 1}, {title: "MESSAGE ID", least: 12},
}

func dlqList(c *call) execution {
	c.takesUsual()
	c.takesConditions()
	scan := deadletter.Scan{Limit: 20}
	c.count(&scan.Limit, "limit", "show at most `N` messages of a queue; 0 = all (default 20)")
	c.count(&scan.Depth, "scan", "read at most `N` messages, from the head of a queue; 0 = all (default 0)")
	return func(ctx context.Context) error {
		return c.readOnly(ctx, func(q deadletter.Queues) error {
			t, now := c.table(listColumns), time.Now()
			s, err := q.Browse(ctx, c.filter, scan, func(m *deadletter.Message) error {
				v := m.View()
				return c.line(t, &v, v.Subscription, listRow(&v, now))
			})
			shown := fmt.Sprintf("%d of %s shown", s.Matched, number(s.Total, "message"))
			return c.endTable(t, err, shown+unread(&s, scan.Limit))
		})
	}
}

// table is one for people, on standard output. It names the subscriptions if they have names.
func (c *call) table(columns []column) *table {
	if c.named {
		columns = slices.Insert(slices.Clone(columns), 0, column{title: "SUBSCRIPTION"})
	}
	width, _ := terminalWidth(c.stdout)
	return &table{w: c.out, columns: columns, width: width, colours: c.coloured(c.stdout)}
}

// line adds the row of a subscription to a table, or writes v with --json.
func (c *call) line(t *table, v any, subscription string, row []string) error {
	if c.json {
		return c.document(v)
	}
	if c.named {
		row = slices.Insert(row, 0, subscription)
	}
	return t.add(row...)
}

// endTable ends a table, and says in a last line what it shows; err is what was wrong before.
func (c *call) endTable(t *table, err error, last string) error {
	if err = errors.Join(err, t.flush()); err == nil && !c.json {
		c.say("%s", last)
	}
	return err
}

func listRow(v *deadletter.View, now time.Time) []string {
	id := v.MessageID
	if v.Foreign {
		id += " (of " + v.OriginalQueue + ", another service's)"
	}
	return []string{
		v.Ref, ago(v.ParkedAt, now), v.Reason, failureText(&v.Facts), strconv.Itoa(v.RetryCount),
		strconv.Itoa(v.RedriveCount), v.RoutingKey, bytesText(v.Size), id,
	}
}

// failureText is the status of the last answer with what it says, or the error.
func failureText(v *deadletter.Facts) string {
	return strings.Join(strings.Fields(statusText(v.Status)+" "+v.Why()), " ")
}

func statusText(status int) string {
	if status == 0 {
		return ""
	}
	return strconv.Itoa(status)
}

// unread says how much of the queue was read, unless it was all, and which flag reads more.
func unread(p *deadletter.Progress, limit int) string {
	switch {
	case p.Scanned >= p.Total:
		return ""
	case limit > 0 && p.Matched >= limit:
		return fmt.Sprintf(", %d read: more with --limit", p.Scanned)
	}
	return fmt.Sprintf(", %d read: more with --scan", p.Scanned)
}

var groupColumns = []column{
	{title: "GROUP"}, {title: "COUNT", right: true}, {title: "REASON", colour: yellow}, {title: "STATUS"},
	{title: "PROBLEM", least: 16}, {title: "ROUTING KEY", least: 10}, {title: "FIRST", rank: 1}, {title: "LAST", rank: 2},
}

func dlqGroups(c *call) execution {
	c.takesUsual()
	c.takesConditions()
	var scan deadletter.Scan
	c.count(&scan.Depth, "scan", "read at most `N` messages, from the head of a queue; 0 = all (default 0)")
	return func(ctx context.Context) error {
		return c.readOnly(ctx, func(q deadletter.Queues) error {
			groups, s, err := q.Groups(ctx, c.filter, scan)
			t, now := c.table(groupColumns), time.Now()
			for _, g := range groups {
				if err == nil {
					err = c.line(t, g, g.Subscription, groupRow(g, now))
				}
			}
			of := fmt.Sprintf("%s of %d of %s", number(len(groups), "group"), s.Matched, number(s.Total, "message"))
			return c.endTable(t, err, of+unread(&s, 0))
		})
	}
}

func groupRow(g *deadletter.Group, now time.Time) []string {
	count := strconv.Itoa(g.Count)
	if g.Foreign > 0 {
		count += fmt.Sprintf(" (%d of other services)", g.Foreign)
	}
	return []string{
		g.ID, count, g.Reason, statusText(g.Status), g.Problem, g.RoutingKey, ago(g.First, now), ago(g.Last, now),
	}
}
