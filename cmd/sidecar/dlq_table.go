package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"sidecar/internal/terminal"
)

// column of a table. When the terminal is narrow, columns with a least width are cut down to it, the widest first; then
// those with a rank are left out, one after the other.
type column struct {
	title  string
	right  bool // aligned
	least  int
	rank   int    // from 1, without a gap
	colour string // used on a colour terminal
}

const (
	tableSample = 100 // rows that decide how wide the columns are: the rest is not kept
	widestCell  = 60  // of a column that others are aligned behind; without a terminal a longer cell moves them
	columnGap   = "  "
)

// table writes rows in columns. It keeps the first rows only, so a table may be of any length.
type table struct {
	w       io.Writer
	columns []column
	width   int  // of the terminal; 0 = not a terminal
	colours bool // the terminal has colours
	rows    [][]string
	widths  []int // once decided; 0 = the column is left out
}

// add makes a row of cells, whose text may come from anywhere.
func (t *table) add(cells ...string) error {
	for i, c := range cells {
		if cells[i] = terminal.Line(c); c == "" {
			cells[i] = "-"
		}
	}
	if t.widths != nil {
		return t.write(cells, false)
	}
	t.rows = append(t.rows, cells)
	if len(t.rows) < tableSample {
		return nil
	}
	return t.flush()
}

// flush writes what is still kept. A table without rows writes nothing.
func (t *table) flush() error {
	if t.widths != nil || len(t.rows) == 0 {
		return nil
	}
	t.widths = t.layout()
	titles := make([]string, len(t.columns))
	for i, c := range t.columns {
		titles[i] = c.title
	}
	if err := t.write(titles, true); err != nil {
		return err
	}
	for _, r := range t.rows {
		if err := t.write(r, false); err != nil {
			return err
		}
	}
	t.rows = nil
	return nil
}

func (t *table) layout() []int {
	natural := make([]int, len(t.columns))
	for i, c := range t.columns {
		natural[i] = utf8.RuneCountInString(c.title)
		for _, r := range t.rows {
			natural[i] = max(natural[i], utf8.RuneCountInString(r[i]))
		}
		if i < len(t.columns)-1 {
			natural[i] = min(natural[i], widestCell)
		}
	}
	for rank := 1; ; rank++ {
		widths := slices.Clone(natural)
		if t.width == 0 || t.shrink(widths) {
			return widths
		}
		out := slices.IndexFunc(t.columns, func(c column) bool { return c.rank == rank })
		if out < 0 {
			return widths
		}
		natural[out] = 0
	}
}

// shrink cuts columns down until the table fits; false when it cannot.
func (t *table) shrink(widths []int) bool {
	for total(widths) > t.width {
		widest := -1
		for i, c := range t.columns {
			if c.least > 0 && widths[i] > c.least && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return false
		}
		widths[widest]--
	}
	return true
}

func total(widths []int) int {
	sum := -len(columnGap)
	for _, w := range widths {
		if w > 0 {
			sum += w + len(columnGap)
		}
	}
	return sum
}

// write writes one row. On a terminal it cuts cells, and what still does not fit; a file has room.
func (t *table) write(cells []string, titles bool) error {
	var line, gap string
	room := t.width
	for i, cell := range cells {
		w, c := t.widths[i], t.columns[i]
		if w == 0 {
			continue
		}
		if t.width > 0 {
			cell = cut(cell, w)
		}
		if !c.right {
			w = -w
		}
		cell = gap + fmt.Sprintf("%*s", w, cell)
		if t.width > 0 {
			cell = cut(cell, room)
			room -= utf8.RuneCountInString(cell)
		}
		if t.colours && !titles && c.colour != "" {
			cell = paint(cell, c.colour)
		}
		line, gap = line+cell, columnGap
	}
	line = strings.TrimRight(line, " ")
	if t.colours && titles {
		line = paint(line, bold)
	}
	_, err := io.WriteString(t.w, line+"\n")
	return err
}

func cut(s string, n int) string {
	switch {
	case utf8.RuneCountInString(s) <= n:
		return s
	case n < 1:
		return ""
	}
	return string([]rune(s)[:n-1]) + "…"
}

// ago says how long before now t was, in one unit.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case t.IsZero():
		return "-"
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", d/time.Hour)
	}
	return fmt.Sprintf("%dd ago", d/(24*time.Hour))
}

func bytesText(n int) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// number is 1 message, 2 messages.
func number(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
