package main

import (
	"context"
	"strconv"
	"time"

	"sidecar/internal/deadletter"
)

var groupColumns = []column{
	{title: "GROUP"}, {title: "COUNT", right: true}, {title: "REASON"}, {title: "STATUS"}, {title: "PROBLEM", least: 16},
	{title: "ROUTING KEY", least: 10}, {title: "FIRST", rank: 1}, {title: "LAST", rank: 2},
}

func dlqGroups(ctx context.Context, c *dlqCall) error {
	c.takesConditions()
	var scan deadletter.Scan
	c.count(&scan.Depth, "scan", "look at most at `N` messages, from the head of the queue; 0 = all (default 0)")
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

// grouped says what the groups are made of.
func grouped(groups int, s *deadletter.Summary) string {
	text := number(groups, "group") + " of " + strconv.Itoa(s.Matched) + " of " + number(s.Total, "message")
	if !s.Complete() {
		text += ", " + strconv.Itoa(s.Scanned) + " looked at: more with --scan"
	}
	return text
}
