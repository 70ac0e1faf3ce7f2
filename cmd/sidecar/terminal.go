package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

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

// escaping writes JSON with \u… for what printable would escape: the same JSON, harmless for a terminal. Line ends
// stay. Such a character can only be inside a string. It may come in two pieces.
type escaping struct {
	w    io.Writer
	half []byte
}

func (e *escaping) Write(p []byte) (int, error) {
	b := append(e.half, p...)
	out := make([]byte, 0, len(b)+64)
	for utf8.FullRune(b) {
		r, n := utf8.DecodeRune(b)
		switch {
		case r == '\n' || unicode.IsPrint(r):
			out = append(out, b[:n]...)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		b = b[n:]
	}
	e.half = slices.Clone(b)
	if _, err := e.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}
