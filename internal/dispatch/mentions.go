package dispatch

import (
	"bytes"
	"encoding/hex"
	entities "html"
	"regexp"
	"strings"

	"sidecar/internal/http1"
	"sidecar/internal/message"
)

const (
	oddBlanks = blanks + "\f\v\u0085\u00a0\ufeff" // of any notation
	closers   = oddBlanks + "\"'`\\]"             // between a name and its value
)

// quotedName matches the name of a member that verdicts have, in broken JSON or in what other languages print: the
// names of findverdicts.go but those that many other texts have, too.
var quotedName = regexp.MustCompile(`(?i)["'](index|entryId|itemIdentifier|disposition|statuses|batchItemFailures)["']`)

// decoded returns text without the codes of characters that template engines, URLs and scripts write, or nil if it has
// none. A regular expression would take far more memory than the text.
func decoded(text []byte) []byte {
	if !bytes.ContainsAny(text, `&%\`) {
		return nil
	}
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		size := 1
		switch text[0] {
		case '&':
			for size < len(text) && (isWord(text[size]) || text[size] == '#' || text[size] == ';') {
				size++
			}
			out = append(out, entities.UnescapeString(string(text[:size]))...)
		case '%', '\\':
			size = codeSize(text)
			out = append(out, text[0])
			if size > 1 {
				_, _ = hex.Decode(out[len(out)-1:], text[size-2:size])
			}
		default:
			out = append(out, text[0])
		}
		text = text[size:]
	}
	return out
}

// codeSize returns the length of the code that text begins with, such as %22, or 1 without any.
func codeSize(text []byte) int {
	for _, start := range [...]string{"%", `\x`, `\u00`} {
		size := len(start) + 2
		if len(text) >= size && string(text[:len(start)]) == start && isHex(text[size-2]) && isHex(text[size-1]) {
			return size
		}
	}
	return 1
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }

// suspicious reports whether a text that is not JSON may have been meant as verdicts.
func suspicious(text []byte) bool {
	for _, t := range [...][]byte{text, decoded(text)} {
		verdicts, failing := mentioned(t)
		if !isText(t) && quotedName.Match(t) || (verdicts || failing) && !isPage(text) {
			return true
		}
	}
	return false
}

// mentioned returns what a text in any notation may say, such as YAML or what Python, Ruby, PHP or Java print of an
// object: verdicts on messages, or a failure that names no message. A name counts if a colon or an equals sign and a
// value follow. Its time is in proportion to the length of the text.
func mentioned(text []byte) (verdicts, failing bool) {
	seen := 0 // names
	for end := bytes.IndexAny(text, ":="); end >= 0; end = bytes.IndexAny(text, ":=") {
		name := lastName(text[:end])
		text = text[end+1:]
		value := bytes.TrimLeft(text, ">+"+oddBlanks) // a plus sign is a blank in a URL
		if len(value) > 0 {
			seen |= 1 << name
		}
		failing = failing || name == nameStatus && failingStatus.Match(value) ||
			name == nameDisposition && anyDisposition.Match(bytes.TrimLeft(value, closers))
	}
	return seen&lists != 0 || seen&identifiers != 0 && seen&(1<<nameStatus|1<<nameDisposition) != 0, failing
}

var (
	failingStatus  = regexp.MustCompile(`^[345][0-9]{2}([^0-9]|$)`)
	anyDisposition = regexp.MustCompile(`(?i)^(` + strings.Join(message.Dispositions[:], "|") + `)`)
)

// lastName returns which of the names text ends with, before quotes and blanks.
func lastName(text []byte) int {
	text = bytes.TrimRight(text, closers)
	for i, name := range names {
		start := len(text) - len(name)
		if start >= 0 && bytes.EqualFold(text[start:], []byte(name)) && (start == 0 || !isWord(text[start-1])) {
			return i
		}
	}
	return otherName
}

// isWord reports whether c before a name makes another name of it, such as z-index.
func isWord(c byte) bool {
	return c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// isPage reports whether text is an HTML document.
func isPage(text []byte) bool {
	text = bytes.TrimLeft(text, oddBlanks)
	return http1.FoldPrefix(text, "<!doctype") || http1.FoldPrefix(text, "<html")
}
