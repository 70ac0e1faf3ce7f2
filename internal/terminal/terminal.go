// Package terminal escapes characters that a terminal may act on: they move the cursor, colour, reorder or hide text,
// or begin a line. It is for every stream that a person may read: logs, answers of the listeners, output of the
// commands. It does not shorten text, and does not read what the text means.
package terminal

import (
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Escape returns b with \uXXXX, as JSON has it, for every character that is not a letter, mark, number, punctuation,
// symbol, plain space, tab or line feed. JSON stays the same JSON: in valid JSON such a character is inside a string. A
// byte that is not UTF-8 becomes U+FFFD. The result is b itself if every byte of b is printable ASCII, a tab or a line
// feed, and a copy otherwise.
func Escape(b []byte) []byte {
	if !slices.ContainsFunc(b, suspicious) {
		return b
	}
	out := make([]byte, 0, len(b)+64)
	for _, r := range string(b) {
		out = appendRune(out, r)
	}
	return out
}

// suspicious reports whether a byte may be a part of a character to be escaped.
func suspicious(c byte) bool { return c < ' ' && c != '\n' && c != '\t' || c > '~' }

func appendRune(out []byte, r rune) []byte {
	if r == '\n' || r == '\t' || unicode.IsPrint(r) {
		return utf8.AppendRune(out, r)
	}
	for _, unit := range utf16.AppendRune(nil, r) {
		const digits = "0123456789abcdef"
		out = append(out, '\\', 'u', digits[unit>>12], digits[unit>>8&15], digits[unit>>4&15], digits[unit&15])
	}
	return out
}

// Line returns s as one line, with escapes as in Go for every character that Escape replaces, tabs and line feeds.
func Line(s string) string { return escaped(s, "") }

// Lines is Line for a text of several lines: tabs and line ends stay.
func Lines(s string) string { return escaped(strings.ReplaceAll(s, "\r\n", "\n"), "\n\t") }

func escaped(s, stay string) string {
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

// Writer escapes everything that is written to W. A Write must not end within a character: Writer belongs before a
// buffer, not behind it.
type Writer struct {
	W      io.Writer
	Screen bool // W is a terminal: sequences for colours, for the end of a line and to write over it stay
}

var sequences = regexp.MustCompile("^\r|\x1b\\[(?:[0-9]*m|K)")

// Write returns len(p) if all of it was written.
func (w Writer) Write(p []byte) (int, error) {
	var out []byte
	rest := p
	for at := w.sequence(rest); at != nil; at = w.sequence(rest) {
		out = append(append(out, Escape(rest[:at[0]])...), rest[at[0]:at[1]]...)
		rest = rest[at[1]:]
	}
	if rest = Escape(rest); out != nil {
		rest = append(out, rest...)
	}
	if _, err := w.W.Write(rest); err != nil {
		return 0, err
	}
	return len(p), nil
}

// sequence returns where the first sequence that stays begins and ends in p, nil without one.
func (w Writer) sequence(p []byte) []int {
	if !w.Screen {
		return nil
	}
	return sequences.FindIndex(p)
}
