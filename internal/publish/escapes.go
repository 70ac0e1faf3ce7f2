package publish

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// unescapeJSON returns the content of a JSON string, which must be valid. The content replaces the string in memory: it
// is never longer.
func unescapeJSON(quoted []byte) []byte {
	in := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(in, '\\') < 0 {
		return in
	}
	out := in[:0]
	for {
		i := bytes.IndexByte(in, '\\')
		if i < 0 {
			return append(out, in...)
		}
		c, size := decodeEscape(in[i:])
		out = utf8.AppendRune(append(out, in[:i]...), c)
		in = in[i+size:]
	}
}

// hasLoneSurrogate reports whether valid JSON has an escape of half a character, which package json would replace
// silently.
func hasLoneSurrogate(raw []byte) bool {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return false
		}
		c, size := decodeEscape(raw[i:])
		if c < 0 {
			return true
		}
		raw = raw[i+size:]
	}
}

// decodeEscape returns the character of the escape at the beginning of b, and the escape's size. c is negative for half
// of a surrogate pair.
func decodeEscape(b []byte) (c rune, size int) {
	if b[1] != 'u' {
		if i := strings.IndexByte("bfnrt", b[1]); i >= 0 {
			return rune("\b\f\n\r\t"[i]), 2
		}
		return rune(b[1]), 2
	}
	c = parseHex(b[2:])
	if !utf16.IsSurrogate(c) {
		return c, 6
	}
	if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
		if c = utf16.DecodeRune(c, parseHex(b[8:])); c != utf8.RuneError {
			return c, 12
		}
	}
	return -1, 6
}

// parseHex returns four hexadecimal digits as a number.
func parseHex(b []byte) rune {
	n, _ := strconv.ParseUint(string(b[:4]), 16, 16) // of valid JSON: it cannot fail
	return rune(n)
}
