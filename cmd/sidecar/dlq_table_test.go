package main

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"sidecar/internal/deadletter"
	"sidecar/internal/testkit/must"
)

// drawn is the list of some messages on a terminal of that width; 0 = a file.
func drawn(t *testing.T, width int, views ...deadletter.View) []string {
	t.Helper()
	var b strings.Builder
	tab := &table{w: &b, columns: listColumns, width: width}
	for i := range views {
		must.Do(t, tab.add(listRow(&views[i], time.Unix(1e9, 0))...))
	}
	must.Do(t, tab.flush())
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

var aView = deadletter.View{
	Ref: "0123456789abcdef", Facts: deadletter.Facts{
		MessageID: "0f3c1e9a-7f1d-4b1e-9a55-000000000001", Reason: "max_retries", Status: 503,
		Problem: deadletter.Problem{Title: "The warehouse has closed"}, RetryCount: 10, RedriveCount: 2,
		ParkedAt: time.Unix(1e9-190, 0), RoutingKey: "warehouse.order.created", Size: 2048,
	},
}

func TestListFitsTheTerminal(t *testing.T) {
	t.Parallel()
	for width, columns := range map[int]string{
		80:  "REF PARKED REASON STATUS/ERROR ROUTING KEY MESSAGE ID",
		100: "REF PARKED REASON STATUS/ERROR RETRIES REDRIVEN ROUTING KEY MESSAGE ID",
		120: "REF PARKED REASON STATUS/ERROR RETRIES REDRIVEN ROUTING KEY SIZE MESSAGE ID",
		0:   "REF PARKED REASON STATUS/ERROR RETRIES REDRIVEN ROUTING KEY SIZE MESSAGE ID",
		20:  "REF P…", // no use, but no harm
	} {
		lines := drawn(t, width, aView, aView)
		if got := strings.Join(strings.Fields(lines[0]), " "); got != columns || len(lines) != 3 {
			t.Errorf("%d columns: %q", width, lines)
		}
		for _, l := range lines {
			if n := utf8.RuneCountInString(l); width > 0 && n > width {
				t.Errorf("%d columns: %d in %q", width, n, l)
			}
		}
	}
	lines := drawn(t, 0, aView)
	want := "0123456789abcdef  3m ago  max_retries  503 The warehouse has closed       10         2  warehouse.order.created  2.0 KiB  0f3c1e9a-7f1d-4b1e-9a55-000000000001"
	if lines[1] != want {
		t.Errorf("%q", lines[1])
	}
}

func TestListRows(t *testing.T) {
	t.Parallel()
	foreign := deadletter.View{Ref: "r", Facts: deadletter.Facts{MessageID: "m", Foreign: true, OriginalQueue: "their.queue", Error: "timeout"}}
	hostile := aView
	hostile.MessageID, hostile.RoutingKey = "\x1b[2Jm\nn", "\u202ek\r"
	hostile.Problem = deadletter.Problem{Title: "\u009b31m"}
	lines := drawn(t, 0, foreign, hostile, deadletter.View{})
	if !strings.Contains(lines[1], "timeout") || !strings.HasSuffix(lines[1], "m (of their.queue, another service's)") {
		t.Errorf("%q", lines[1])
	}
	for _, want := range []string{`\x1b[2Jm\nn`, `\u202ek\r`, `503 \u009b31m`} {
		if !strings.Contains(lines[2], want) {
			t.Errorf("no %s in %q", want, lines[2])
		}
	}
	if got := strings.Join(strings.Fields(lines[3]), " "); got != "- - - - 0 0 - 0 B -" {
		t.Errorf("%q", got)
	}
}

// TestTableOfAnyLength keeps few rows, and rows behind those may be wider.
func TestTableOfAnyLength(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{0: "a-very-long-cell  last-cell-that-is-long", 9: "a…  last…"} {
		var b strings.Builder
		tab := &table{w: &b, columns: []column{{title: "A"}, {title: "B", least: 5}}, width: width}
		for i := range 3 * tableSample {
			must.Do(t, tab.add(strconv.Itoa(i%10)+"x", "short"))
			if len(tab.rows) > tableSample {
				t.Fatalf("%d rows are kept", len(tab.rows))
			}
		}
		must.Do(t, tab.add("a-very-long-cell", "last-cell-that-is-long"))
		must.Do(t, tab.flush())
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		if len(lines) != 3*tableSample+2 || lines[len(lines)-1] != want {
			t.Errorf("%d lines, the last is %q, want %q", len(lines), lines[len(lines)-1], want)
		}
	}
	var b strings.Builder
	if err := (&table{w: &b, columns: listColumns}).flush(); err != nil || b.Len() > 0 {
		t.Errorf("an empty table writes %q", b.String())
	}
}

var errFull = errors.New("disk full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestTableCannotBeWritten(t *testing.T) {
	t.Parallel()
	for _, rows := range []int{1, tableSample, tableSample + 1} {
		tab := &table{w: full{}, columns: []column{{title: "A"}}}
		var err error
		for range rows {
			err = errors.Join(err, tab.add("x"))
		}
		if err = errors.Join(err, tab.flush()); !errors.Is(err, errFull) {
			t.Errorf("%d rows: %v", rows, err)
		}
	}
}

func TestUnread(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s     deadletter.Progress
		limit int
		want  string
	}{
		{deadletter.Progress{}, 20, ""},
		{deadletter.Progress{Total: 1, Scanned: 1, Matched: 1}, 20, ""},
		{deadletter.Progress{Total: 1234, Scanned: 20, Matched: 20}, 20, ", 20 read: more with --limit"},
		{deadletter.Progress{Total: 1234, Scanned: 100, Matched: 3}, 20, ", 100 read: more with --scan"},
		{deadletter.Progress{Total: 1234, Scanned: 1000, Matched: 3}, 0, ", 1000 read: more with --scan"},
	} {
		if got := unread(&c.s, c.limit); got != c.want {
			t.Errorf("%+v: %q, want %q", c, got, c.want)
		}
	}
}

func TestGroupRows(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	g := deadletter.Group{
		GroupKey: deadletter.GroupKey{ID: "abc", Reason: "max_retries", Status: 503, Problem: "urn:p", RoutingKey: "k"},
		Count:    7, Foreign: 2, First: now.Add(-time.Hour), Last: now.Add(-time.Minute),
	}
	if got := strings.Join(groupRow(&g, now), "|"); got != "abc|7 (2 of other services)|max_retries|503|urn:p|k|1h ago|1m ago" {
		t.Errorf("%q", got)
	}
	if got := strings.Join(groupRow(&deadletter.Group{}, now), "|"); got != "|0|||||-|-" {
		t.Errorf("%q", got)
	}
}
