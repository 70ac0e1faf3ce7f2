package http1

import (
	"bytes"
	"time"
)

// What a byte may be part of in a header line.
const (
	inName = 1 << iota
	inValue
)

var headerByte = func() (t [256]byte) {
	for c := range t {
		if c >= 0x20 && c != 0x7f || c == '\t' {
			t[c] |= inValue
		}
	}
	// A name must not contain a space, but net/http lets it pass and so do we: it is then a header that is ignored.
	for _, c := range []byte("!#$%&'*+-.^_`|~ 0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		t[c] |= inName
	}
	return t
}()

func consistsOf(b []byte, class byte) bool {
	for _, c := range b {
		if headerByte[c]&class == 0 {
			return false
		}
	}
	return true
}

// cutField splits a header line; false means that the answer is malformed.
func cutField(b []byte) (name, value []byte, ok bool) {
	i := bytes.IndexByte(b, ':')
	if i <= 0 || !consistsOf(b[:i], inName) || !consistsOf(b[i+1:], inValue) {
		return nil, nil, false
	}
	return b[:i], bytes.Trim(b[i+1:], " \t"), true
}

// set reads the fields that this package needs itself; false means that the answer is malformed.
func (f *fields) set(name, value []byte) bool {
	switch len(name) {
	case 10:
		switch {
		case FoldEqual(name, "connection"):
			f.close = f.close || hasToken(value, "close")
		case FoldEqual(name, "keep-alive"):
			f.keepAlive = keepAlive(value)
		}
	case 14:
		if FoldEqual(name, "content-length") {
			return f.setLength(value)
		}
	case 17:
		if FoldEqual(name, "transfer-encoding") {
			f.chunked = !f.coded && FoldEqual(value, "chunked")
			f.coded = true
		}
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
	for len(b) > 0 {
		var item []byte
		item, b, _ = bytes.Cut(b, []byte{','})
		if FoldEqual(bytes.Trim(item, " \t"), token) {
			return true
		}
	}
	return false
}

// keepAlive reads "timeout=N" of a Keep-Alive header and stays a second below it, or half of it where N is 1: the app
// counts from when it sent, we from when we received.
func keepAlive(b []byte) time.Duration {
	for len(b) > 0 {
		var item []byte
		item, b, _ = bytes.Cut(b, []byte{','})
		item = bytes.Trim(item, " \t")
		if !FoldPrefix(item, "timeout=") || len(item) > len("timeout=")+6 {
			continue
		}
		var n time.Duration
		for _, c := range item[len("timeout="):] {
			if !digit(c) {
				return noLimit
			}
			n = n*10 + time.Duration(c-'0')
		}
		n *= time.Second
		return max(n-time.Second, n/2)
	}
	return noLimit
}

// noLimit is what an app without a Keep-Alive header promises.
const noLimit = time.Duration(1<<63 - 1)
