package dispatch

import "math"

// ASCII case folding over bytes, without allocating. The second argument of foldEqual and foldPrefix is lower case.

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c | 0x20
	}
	return c
}

func foldEqual(b []byte, s string) bool { return len(b) == len(s) && foldPrefix(b, s) }

func foldPrefix(b []byte, prefix string) bool {
	if len(b) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if lower(b[i]) != prefix[i] {
			return false
		}
	}
	return true
}

func equalFold(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i, c := range a {
		if lower(c) != lower(b[i]) {
			return false
		}
	}
	return true
}

// foldedHash is FNV-1a over the lower-cased bytes.
func foldedHash(b []byte) uint32 {
	h := uint32(2166136261)
	for _, c := range b {
		h = (h ^ uint32(lower(c))) * 16777619
	}
	return h
}

// parseDigits reads a decimal number without sign or space; one beyond int64 is as large as any.
func parseDigits(b []byte) (int64, bool) {
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
