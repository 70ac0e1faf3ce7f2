package http1

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"time"
)

// nameByte says which bytes a name may contain. net/http also allows a space; here "Amqp-Disposition : park" would then
// be a field that is ignored, and a 2xx would take the message.
var nameByte = func() (t [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		t[c] = true
	}
	return t
}()

func isName(b []byte) bool {
	for _, c := range b {
		if !nameByte[c] {
			return false
		}
	}
	return true
}

func isValue(b []byte) bool {
	for _, c := range b {
		if c < 0x20 && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// cutField splits a header line; false means that the answer is malformed.
func cutField(b []byte) (name, value []byte, ok bool) {
	i := bytes.IndexByte(b, ':')
	if i <= 0 || !isName(b[:i]) || !isValue(b[i+1:]) {
		return nil, nil, false
	}
	return b[:i], bytes.Trim(b[i+1:], " \t"), true
}

// set reads the fields that this package needs itself; false means that the answer is malformed.
func (f *fields) set(name, value []byte) bool {
	switch {
	case FoldEqual(name, "connection"):
		f.close = f.close || hasToken(value, "close")
	case FoldEqual(name, "keep-alive"):
		f.keepAlive = keepAlive(value)
	case FoldEqual(name, "content-length"):
		return f.setLength(value)
	case FoldEqual(name, "transfer-encoding"):
		f.chunked = !f.coded && FoldEqual(value, "chunked")
		f.coded = true
	}
	return true
}

// setLength reads a Content-Length. With two that differ the end of the answer is unknown; with two that agree the
// connection is not used again.
func (f *fields) setLength(b []byte) bool {
	n, ok := ParseDigits(b)
	if !ok || f.length >= 0 && f.length != n {
		return false
	}
	f.close = f.close || f.length >= 0
	f.length = n
	return true
}

// hasToken reports whether the comma-separated list b holds the lower-case token.
func hasToken(b []byte, token string) bool {
	for item := range bytes.SplitSeq(b, []byte{','}) {
		if FoldEqual(bytes.Trim(item, " \t"), token) {
			return true
		}
	}
	return false
}

// keepAlive reads "timeout=N" of a Keep-Alive header and stays a second below it, or half of it where N is 1: the app
// counts from when it sent, we from when we received.
func keepAlive(b []byte) time.Duration {
	for item := range bytes.SplitSeq(b, []byte{','}) {
		item = bytes.Trim(item, " \t")
		if !FoldPrefix(item, "timeout=") {
			continue
		}
		if n, ok := ParseDigits(item[len("timeout="):]); ok && n < 1e6 {
			timeout := time.Duration(n) * time.Second
			return max(timeout-time.Second, timeout/2)
		}
	}
	return noLimit
}

// noLimit is what an app without a Keep-Alive header promises.
const noLimit = time.Duration(math.MaxInt64)

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
	n, err := strconv.ParseUint(string(b), 10, 63)
	if errors.Is(err, strconv.ErrRange) { // returned before all of b was read
		return math.MaxInt64, len(bytes.Trim(b, "0123456789")) == 0
	}
	return int64(n), err == nil // #nosec G115 -- 63 bits
}
