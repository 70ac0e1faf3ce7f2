package dispatch

import (
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"sidecar/internal/http1"
)

const (
	maxContentType = 100 // bytes of a Content-Type that are read
	latin1         = "iso-8859-1"
)

// text returns the beginning of the body as text for people, at most a.limit bytes. What is not text is named by its
// type and size.
func (a *answer) text(in *http1.Answer) string {
	contentType := string(a.contentType)
	if contentType == "" {
		contentType = http.DetectContentType(in.Body)
	}
	kind, parameters, _ := mime.ParseMediaType(contentType)
	charset := strings.ToLower(parameters["charset"])
	if slices.Contains([]string{"latin1", "latin-1", "iso8859-1"}, charset) {
		charset = latin1
	}
	readable := !strings.HasPrefix(charset, "utf-16") && !strings.HasPrefix(charset, "utf-32")
	isText := strings.HasPrefix(kind, "text/") || kind == "application/x-www-form-urlencoded" ||
		strings.HasSuffix(kind, "json") || strings.HasSuffix(kind, "xml")
	if readable && isText && !a.encoded {
		return escape(in.Body, charset, int64(len(in.Body)) < in.Size, a.limit)
	}
	how, least := "", ""
	if a.encoded {
		how = "compressed "
	}
	if !in.Whole {
		least = "at least "
	}
	return escape(fmt.Appendf(nil, "(not text: %s%s, %s%d bytes)", how, contentType, least, in.Size), "", false, a.limit)
}

// escape returns at most limit bytes of b as valid UTF-8: control characters except LF and TAB, and bytes that are not
// UTF-8, are written as \xNN. No character and no \xNN is cut; more means that b is only the
// beginning, which may end within a character.
func escape(b []byte, charset string, more bool, limit int) string {
	out := make([]byte, 0, min(limit, len(b)))
	for len(b) > 0 && (!more || charset == latin1 || utf8.FullRune(b)) {
		r, n := utf8.DecodeRune(b)
		if charset == latin1 {
			r, n = rune(b[0]), 1
		}
		end := len(out)
		if r == utf8.RuneError && n == 1 || unicode.IsControl(r) && r != '\n' && r != '\t' {
			for _, c := range b[:n] {
				out = fmt.Appendf(out, `\x%02x`, c)
			}
		} else {
			out = utf8.AppendRune(out, r)
		}
		if len(out) > limit {
			return string(out[:end])
		}
		b = b[n:]
	}
	return string(out)
}
