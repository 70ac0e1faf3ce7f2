package http1

import (
	"bytes"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

// Inbound reads plain POST requests out of a buffer, with far less work than net/http: a request line, header lines
// that each end with CRLF, and a body of a known length. For each request that has anything else Parse returns false,
// and net/http has to read it from its first byte: see docs/decisions/0038.
type Inbound struct {
	// Request is the parsed request, valid until the next Parse, with Body once Take was called.
	Request *http.Request
	Head    int // bytes of the head
	Size    int // bytes of head and body

	values []string
	body   wholeBody
}

// MaxInboundHead bounds a head that Parse reads, in bytes.
const MaxInboundHead = 4 << 10

// NewInbound returns a parser whose requests come from a peer, as host:port. base is a request with their context.
func NewInbound(base *http.Request, peer string) *Inbound {
	in := &Inbound{Request: base}
	in.Request.Method, in.Request.RemoteAddr, in.Request.Header = http.MethodPost, peer, http.Header{}
	in.Request.Proto, in.Request.ProtoMajor, in.Request.ProtoMinor = "HTTP/1.1", 1, 1
	return in
}

var headSeparator = []byte("\r\n\r\n")

// Parse reads the head at the beginning of b. It returns false for a request that only net/http reads: another method
// than POST, a target without prefix, any unusual head. While the head is incomplete Size is 0.
func (in *Inbound) Parse(b []byte, prefix string) bool {
	in.Head, in.Size = 0, 0
	const method = "POST "
	begin := min(len(b), len(method)+len(prefix))
	if string(b[:begin]) != (method + prefix)[:begin] {
		return false
	}
	end := bytes.Index(b, headSeparator)
	if end < 0 {
		return len(b) < MaxInboundHead
	}
	if end > MaxInboundHead {
		return false
	}
	line, rest, _ := strings.Cut(string(b[:end+len("\r\n")]), "\r\n") // one string, of which all others are parts
	target, ok := strings.CutSuffix(line[len(method):], " HTTP/1.1")
	if !ok || !in.target(target) {
		return false
	}
	clear(in.Request.Header)
	in.values, in.Request.Host, in.Request.ContentLength = in.values[:0], "", -1
	for rest != "" {
		if line, rest, ok = strings.Cut(rest, "\r\n"); !ok || !in.field(line) {
			return false
		}
	}
	length := max(in.Request.ContentLength, 0)
	in.Request.ContentLength = length
	in.Head = end + len(headSeparator)
	in.Size = in.Head + int(length)
	return in.Request.Host != ""
}

// target sets the URL. Anything but letters, digits and the plainest marks is parsed as net/http does it.
func (in *Inbound) target(s string) bool {
	plain := true
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
		plain = plain && plainTarget[s[i]]
	}
	in.Request.RequestURI = s
	if plain {
		in.Request.URL = &url.URL{Path: s}
		return true
	}
	u, err := url.ParseRequestURI(s)
	in.Request.URL = u
	return err == nil
}

var plainTarget = bytesOf("-_.~/0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")

var plainHost = bytesOf("-_.:[]0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")

func bytesOf(s string) (t [256]bool) {
	for _, c := range []byte(s) {
		t[c] = true
	}
	return t
}

// field reads one header line.
func (in *Inbound) field(line string) bool {
	name, value, ok := strings.Cut(line, ":")
	if !ok || name == "" || !isToken(name) || !isText(value) {
		return false
	}
	name, value = textproto.CanonicalMIMEHeaderKey(name), strings.Trim(value, " \t")
	switch name {
	case "Host":
		return in.host(value)
	case "Content-Length":
		return in.length(value)
	case "Connection":
		return strings.EqualFold(value, "keep-alive")
	case "Transfer-Encoding", "Expect", "Upgrade", "Trailer":
		return false
	}
	if have := in.Request.Header[name]; have != nil {
		in.Request.Header[name] = append(have, value)
		return true
	}
	in.values = append(in.values, value)
	n := len(in.values)
	in.Request.Header[name] = in.values[n-1 : n : n]
	return true
}

func (in *Inbound) host(value string) bool {
	first := in.Request.Host == ""
	in.Request.Host = value
	for i := range len(value) {
		if !plainHost[value[i]] {
			return false
		}
	}
	return first && value != ""
}

func (in *Inbound) length(value string) bool {
	n, ok := ParseDigits([]byte(value))
	first := in.Request.ContentLength < 0
	in.Request.ContentLength = n
	return ok && first && n < 1<<30
}

func isToken(s string) bool {
	for i := range len(s) {
		if !nameByte[s[i]] {
			return false
		}
	}
	return true
}

func isText(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// Take gives Request its body, the bytes of b behind the head.
func (in *Inbound) Take(b []byte) {
	in.body.rest = b[in.Head:in.Size]
	in.Request.Body = &in.body
	if len(in.body.rest) == 0 {
		in.Request.Body = http.NoBody
	}
}

// wholeBody is a body of which all bytes have arrived. Its last Read also returns io.EOF.
type wholeBody struct{ rest []byte }

func (b *wholeBody) Read(p []byte) (n int, err error) {
	n = copy(p, b.rest)
	if b.rest = b.rest[n:]; len(b.rest) == 0 {
		err = io.EOF
	}
	return n, err
}

func (b *wholeBody) Close() error { return nil }
