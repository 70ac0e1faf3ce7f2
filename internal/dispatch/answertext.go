package dispatch

import (
	"bytes"
	"cmp"
	"fmt"
	"mime"
	"strings"
	"unicode"
	"unicode/utf8"

	"sidecar/internal/http1"
)

// maxContentType is how many bytes of a Content-Type are read.
const maxContentType = 100

// text returns the beginning of the body as text for people, at most a.limit bytes of it; "" without a body. What is not
// text is named by its type and size in parentheses.
func (a *answer) text(in *http1.Answer) string {
	kind, parameters, _ := mime.ParseMediaType(string(a.contentType)) // "" if it is missing or malformed
	charset := strings.ToLower(parameters["charset"])
	latin1 := charset == "iso-8859-1"
	body, why := in.Body, ""
	switch {
	case in.Size == 0 || in.Size < 0 && len(body) == 0:
		return ""
	case a.encoded:
		why = "compressed"
	case kind != "" && !isText(kind), kind == "" && bytes.ContainsFunc(wholeRunes(body), binary):
		why = "not text"
	case !latin1 && charset != "" && charset != "utf-8" && charset != "us-ascii":
		why = "another charset"
	case !in.Whole || int64(len(body)) < in.Size: // the end of body may be a part of a character
		body = wholeRunes(body)
	}
	if why != "" {
		size := "of unknown size"
		if in.Size > 0 {
			size = fmt.Sprintf("%d bytes", in.Size)
		}
		return escape(fmt.Appendf(nil, "(%s: %s, %s)", why, cmp.Or(kind, "no content type"), size), false, a.limit)
	}
	return escape(body, latin1, a.limit)
}

func isText(kind string) bool {
	return strings.HasPrefix(kind, "text/") || kind == "application/x-www-form-urlencoded" ||
		strings.HasSuffix(kind, "json") || strings.HasSuffix(kind, "xml")
}

// wholeRunes returns b without the beginning of a character at its end.
func wholeRunes(b []byte) []byte {
	for i := max(0, len(b)-utf8.UTFMax); i < len(b); i++ {
		if utf8.RuneStart(b[i]) && !utf8.FullRune(b[i:]) {
			return b[:i]
		}
	}
	return b
}

// binary reports whether r is not a character of a text, or is a byte that is not UTF-8.
func binary(r rune) bool {
	return r == utf8.RuneError || unicode.IsControl(r) && !strings.ContainsRune("\t\n\r", r)
}

// escape returns at most limit bytes of b as valid UTF-8: control characters except LF and TAB, and bytes that are not
// UTF-8, are written as \xNN. No character and no \xNN is cut.
func escape(b []byte, latin1 bool, limit int) string {
	out := make([]byte, 0, min(limit, len(b)))
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if latin1 {
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
