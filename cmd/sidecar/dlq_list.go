package main

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"sidecar/internal/deadletter"
)

var listColumns = []column{
	{title: "REF"}, {title: "PARKED"}, {title: "REASON"}, {title: "STATUS/ERROR", least: 12},
	{title: "RETRIES", right: true, rank: 3}, {title: "REDRIVEN", right: true, rank: 2},
	{title: "ROUTING KEY", least: 8, rank: 4}, {title: "SIZE", right: true, rank: 1}, {title: "MESSAGE ID", least: 12},
}

func dlqList(ctx context.Context, c *dlqCall) error {
	c.takesConditions()
	scan := deadletter.Scan{Limit: 20}
	c.count(&scan.Limit, "limit", "show at most `N` messages; 0 = all (default 20)")
	c.count(&scan.Depth, "scan", "read at most `N` messages, from the head of the queue; 0 = all (default 0)")
	if err := c.parse(0); err != nil {
		return err
	}
	q, err := c.open()
	if err != nil {
		return err
	}
	return c.look(ctx, q, c.list(ctx, q, scan))
}

func (c *dlqCall) list(ctx context.Context, q *deadletter.Queue, scan deadletter.Scan) error {
	t, now := c.table(listColumns), time.Now()
	s, err := q.Browse(ctx, c.filter, scan, func(m *deadletter.Message) error {
		v := m.View()
		if c.json {
			return c.document(v)
		}
		return t.add(listRow(&v, now)...)
	})
	if c.json {
		return err
	}
	if err = errors.Join(err, t.flush()); err == nil {
		c.say("%s", listed(&s, scan.Limit))
	}
	return err
}

// table is one for people, on standard output.
func (c *dlqCall) table(columns []column) *table {
	width, _ := terminalWidth(c.stdout)
	return &table{w: c.out, columns: columns, width: width}
}

func listRow(v *deadletter.View, now time.Time) []string {
	id := v.MessageID
	if v.Foreign {
		id += " (of " + v.OriginalQueue + ", another service's)"
	}
	return []string{
		v.Ref, ago(v.ParkedAt, now), v.Reason, failureText(v), strconv.Itoa(v.RetryCount), strconv.Itoa(v.RedriveCount),
		v.RoutingKey, bytesText(v.Size), id,
	}
}

// failureText is the status of the last answer with its problem, or the error.
func failureText(v *deadletter.View) string {
	text := cmp.Or(v.Error, v.Detail)
	if v.Problem != nil {
		text = cmp.Or(v.Problem.Title, v.Problem.Type, v.Problem.Detail, text)
	}
	switch {
	case v.Status == 0:
		return text
	case text == "":
		return strconv.Itoa(v.Status)
	}
	return strconv.Itoa(v.Status) + " " + text
}

// listed says how much of the queue a list has shown.
func listed(s *deadletter.Summary, limit int) string {
	text := strconv.Itoa(s.Matched) + " of " + number(s.Total, "message") + " shown"
	switch {
	case s.Complete():
		return text
	case limit > 0 && s.Matched >= limit:
		return text + ", " + strconv.Itoa(s.Scanned) + " read: more with --limit"
	}
	return text + ", " + strconv.Itoa(s.Scanned) + " read: more with --scan"
}

var groupColumns = []column{
	{title: "GROUP"}, {title: "COUNT", right: true}, {title: "REASON"}, {title: "STATUS"}, {title: "PROBLEM", least: 16},
	{title: "ROUTING KEY", least: 10}, {title: "FIRST", rank: 1}, {title: "LAST", rank: 2},
}

func dlqGroups(ctx context.Context, c *dlqCall) error {
	c.takesConditions()
	var scan deadletter.Scan
	c.count(&scan.Depth, "scan", "read at most `N` messages, from the head of the queue; 0 = all (default 0)")
	if err := c.parse(0); err != nil {
		return err
	}
	q, err := c.open()
	if err != nil {
		return err
	}
	return c.look(ctx, q, c.groups(ctx, q, scan))
}

func (c *dlqCall) groups(ctx context.Context, q *deadletter.Queue, scan deadletter.Scan) error {
	groups, s, err := q.Groups(ctx, c.filter, scan)
	if err != nil {
		return err
	}
	t, now := c.table(groupColumns), time.Now()
	for i := range groups {
		if c.json {
			err = c.document(groups[i])
		} else {
			err = t.add(groupRow(&groups[i], now)...)
		}
		if err != nil {
			return err
		}
	}
	if c.json {
		return nil
	}
	if err = t.flush(); err == nil {
		c.say("%s", grouped(len(groups), &s))
	}
	return err
}

func groupRow(g *deadletter.Group, now time.Time) []string {
	count, status := strconv.Itoa(g.Count), ""
	if g.Foreign > 0 {
		count += " (" + strconv.Itoa(g.Foreign) + " of other services)"
	}
	if g.Status != 0 {
		status = strconv.Itoa(g.Status)
	}
	return []string{g.ID, count, g.Reason, status, g.Problem, g.RoutingKey, ago(g.First, now), ago(g.Last, now)}
}

// grouped is the last line below the groups: how many messages they have.
func grouped(groups int, s *deadletter.Summary) string {
	text := number(groups, "group") + " of " + strconv.Itoa(s.Matched) + " of " + number(s.Total, "message")
	if !s.Complete() {
		text += ", " + strconv.Itoa(s.Scanned) + " read: more with --scan"
	}
	return text
}
