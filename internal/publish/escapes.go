package publish

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// unescapeJSON returns the content of a JSON string, which is valid and has no half of a surrogate pair. The content takes the
// place of the string: it is never longer.
func unescapeJSON(quoted []byte) []byte {
	in := quoted[1 : len(quoted)-1]
	n := bytes.IndexByte(in, '\\')
	if n < 0 {
		return in
	}
	out := in[:n]
	for in = in[n:]; len(in) > 0; {
		if in[0] != '\\' {
			n = bytes.IndexByte(in, '\\')
			if n < 0 {
				n = len(in)
			}
			out, in = append(out, in[:n]...), in[n:]
			continue
		}
		if in[1] != 'u' {
			out, in = append(out, plain(in[1])), in[2:]
			continue
		}
		c := escaped(in)
		in = in[6:]
		if utf16.IsSurrogate(c) {
			c = utf16.DecodeRune(c, escaped(in))
			in = in[6:]
		}
		out = utf8.AppendRune(out, c)
	}
	return out
}

// plain is the character that an escape with a backslash stands for.
func plain(c byte) byte {
	if i := strings.IndexByte("bfnrt", c); i >= 0 {
		return "\b\f\n\r\t"[i]
	}
	return c
}

// hasLoneSurrogate looks in valid JSON for an escape of half a character, which package json would replace without a word.
func hasLoneSurrogate(raw []byte) bool {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return false
		}
		if raw = raw[i:]; raw[1] != 'u' {
			raw = raw[2:]
			continue
		}
		first := escaped(raw)
		raw = raw[6:]
		if !utf16.IsSurrogate(first) {
			continue
		}
		if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' || utf16.DecodeRune(first, escaped(raw)) == utf8.RuneError {
			return true
		}
		raw = raw[6:]
	}
}

// escaped reads \uXXXX.
func escaped(raw []byte) rune {
	n, _ := strconv.ParseUint(string(raw[2:6]), 16, 16) // of valid JSON: it cannot fail
	return rune(n)
}
