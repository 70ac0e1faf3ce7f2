package main

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Colours, as parameters of SGR.
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func paint(s, colour string) string { return "\x1b[" + colour + "m" + s + "\x1b[0m" }

// coloured reports whether a stream is a terminal that has colours, and the user has nothing against them.
func (in *invocation) coloured(stream any) bool {
	_, terminal := terminalWidth(stream)
	return terminal && in.getenv("NO_COLOR") == "" && !slices.Contains([]string{"", "dumb"}, in.getenv("TERM"))
}

// painted is paint for a stream. Without a colour the text stays as it is.
func (in *invocation) painted(stream any, s, colour string) string {
	if colour != "" && in.coloured(stream) {
		return paint(s, colour)
	}
	return s
}

// getenv returns a variable that concerns the terminal or Go itself, not the configuration.
func (in *invocation) getenv(name string) string {
	for _, v := range in.environ {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// printable makes a message's own text harmless for a terminal: a character that is not a letter, mark, number,
// punctuation, symbol or plain space is written as an escape, so that nothing moves the cursor, colours, reorders or
// begins a line.
func printable(s string) string { return printableBut(s, "") }

// printableLines is printable for a text of several lines, tabs included.
func printableLines(s string) string {
	return printableBut(strings.ReplaceAll(s, "\r\n", "\n"), "\n\t")
}

// printableBut is printable, except for characters that stay.
func printableBut(s, stay string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) || strings.ContainsRune(stay, r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
