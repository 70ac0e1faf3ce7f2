package http1

import "math"

// Lower is the lower case of an ASCII letter, and c for any other byte.
func Lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c | 0x20
	}
	return c
}

// FoldEqual reports whether b is s, which is lower case, in any case.
func FoldEqual(b []byte, s string) bool { return len(b) == len(s) && FoldPrefix(b, s) }

// FoldPrefix reports whether b begins with prefix, which is lower case, in any case.
func FoldPrefix(b []byte, prefix string) bool {
	if len(b) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if Lower(b[i]) != prefix[i] {
			return false
		}
	}
	return true
}

// ParseDigits reads a decimal number without sign or space; one beyond int64 is as large as any.
func ParseDigits(b []byte) (int64, bool) {
	if len(b) == 0 {
		return 0, false
	}
	var n int64
	for _, c := range b {
		if !digit(c) {
			return 0, false
		}
		if n < (math.MaxInt64-9)/10 {
			n = n*10 + int64(c-'0')
		} else {
			n = math.MaxInt64
		}
	}
	return n, true
}
