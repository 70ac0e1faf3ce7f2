package main

import (
	"cmp"
	"os"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
)

// terminalWidth returns how many columns the terminal of a stream has. ok is false when it is not a terminal: /dev/null
// is a character device too, but has no size.
func terminalWidth(stream any) (columns int, ok bool) {
	f, ok := stream.(*os.File)
	if !ok {
		return 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ) //nolint:gosec // a file descriptor is a small number
	if err != nil {
		return 0, false
	}
	return cmp.Or(int(size.Col), 80), true // some do not report their width
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
