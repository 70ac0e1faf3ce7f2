package test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// This file is the contract's header mapping written a second time, from the contract alone.

// wantName is the HTTP name of a message header: letters, digits and hyphen stay, `_`, `.` and space become a hyphen,
// every other byte goes.
func wantName(key string) string {
	var b strings.Builder
	b.WriteString("Amqp-Header-")
	for i := range len(key) {
		switch c := key[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-':
			b.WriteByte(c)
		case c == '_', c == '.', c == ' ':
			b.WriteByte('-')
		}
	}
	return b.String()
}

// wantEscape percent-encodes control bytes, bytes outside ASCII and the percent sign itself.
func wantEscape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// wantText is the text of a scalar; ok is false for values whose text the contract does not fix.
func wantText(v any) (text string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case time.Time:
		return v.UTC().Format(time.RFC3339), true
	case []byte:
		if utf8.Valid(v) {
			return string(v), true
		}
		return base64.StdEncoding.EncodeToString(v), true
	case int8, int16, int32, int64, uint8, uint16, uint32:
		return fmt.Sprint(v), true
	}
	return "", false
}

// unescape undoes wantEscape.
func unescape(t testing.TB, s string) string {
	t.Helper()
	u, err := url.PathUnescape(s)
	if err != nil {
		t.Errorf("header value %q is not well percent-encoded: %v", s, err)
	}
	return u
}

func TestEncodingReference(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{wantName("x-trace_id.v2 b"), "Amqp-Header-x-trace-id-v2-b"},
		{wantName(":authority\r\n"), "Amqp-Header-authority"},
		{wantEscape("a\r\nX: 1"), "a%0D%0AX: 1"},
		{wantEscape("100% ü\x7f"), "100%25 %C3%BC%7F"},
	} {
		if c[0] != c[1] {
			t.Errorf("%q, want %q", c[0], c[1])
		}
	}
}
