package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

const plainPost = "POST /publish/default/order.created HTTP/1.1\r\nHost: 127.0.0.1:9092\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

func newInbound() *Inbound { return NewInbound(new(http.Request), "127.0.0.1:1") }

// FuzzInbound: net/http takes each request that Parse takes, for the same request that ends at the same byte.
func FuzzInbound(f *testing.F) {
	for _, seed := range []string{
		plainPost, plainPost + plainPost, "POST /publish/a/b%2Fc?x HTTP/1.1\r\nhost: LOCALHOST\r\namqp-header-a:  b \r\nAmqp-Header-A: c\r\n\r\n",
		"POST /publish/default/k HTTP/1.1\r\nHost: h\r\nConnection: Keep-Alive\r\nContent-Length: 007\r\n\r\n1234567",
		"POST /publish/default/k HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", "POST /publish/default/k HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\nx",
		"POST /publish/default/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "POST /publish/ HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", "POST /publish/ HTTP/1.1\nHost: h\n\n",
		"POST /publish/ HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", "POST /publish/  HTTP/1.1\r\nHost: h\r\n\r\n", "POST /publish/ HTTP/1.0\r\nHost: h\r\n\r\n", "POST /publish/%zz HTTP/1.1\r\nHost: h\r\n\r\n", "POST /publish/ä HTTP/1.1\r\nHost: h\r\nX-\xc3: y\r\n\r\n",
		"POST /publish/ HTTP/1.1\r\nHost : h\r\n\r\n", "POST /publish/ HTTP/1.1\r\nHost: h\r\nA: b\x00\r\n\r\n", "POST /publish/a#b HTTP/1.1\r\nHost: h\r\n\r\n", "POST /publish/ HTTP/1.1\r\n\r\n",
		"POST /publish/ HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551617\r\n\r\n", "POST /publish/ HTTP/1.1\r\nHost: h\r\nPragma: no-cache\r\nContent-Length:\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		in := newInbound()
		if !in.Parse(raw, "/publish/") || in.Size == 0 || in.Size > len(raw) {
			return
		}
		in.Take(raw)
		from := bufio.NewReader(bytes.NewReader(raw))
		want, err := http.ReadRequest(from)
		if err != nil {
			t.Fatalf("net/http refuses %q: %v", raw[:in.Size], err)
		}
		body, err := io.ReadAll(want.Body)
		rest := must.Get(io.ReadAll(from))(t)
		got := must.Get(io.ReadAll(in.Request.Body))(t)
		if err != nil || !bytes.Equal(body, got) || len(raw)-len(rest) != in.Size {
			t.Fatalf("%q: the body is %q of %d bytes, want %q of %d (%v)", raw, got, in.Size, body, len(raw)-len(rest), err)
		}
		header := want.Header.Clone()
		header.Del("Content-Length")
		header.Del("Connection")
		if _, added := in.Request.Header["Cache-Control"]; !added && header.Get("Pragma") == "no-cache" {
			header.Del("Cache-Control") // which net/http adds
		}
		if in.Request.Method != want.Method || *in.Request.URL != *want.URL || in.Request.RequestURI != want.RequestURI || in.Request.Host != want.Host ||
			in.Request.ContentLength != want.ContentLength || !reflect.DeepEqual(in.Request.Header, header) || len(want.TransferEncoding) > 0 || want.Close {
			t.Fatalf("%q: %+v, want %+v", raw, in.Request, want)
		}
	})
}

// TestInboundTakesPlainRequests: the requests of usual clients are read here, whatever their parts.
func TestInboundTakesPlainRequests(t *testing.T) {
	t.Parallel()
	in := newInbound()
	for _, raw := range []string{
		plainPost, strings.Replace(plainPost, "order.created", "a%2Fb", 1), strings.Replace(plainPost, "Host", "User-Agent: curl/8\r\nAccept: */*\r\nhost", 1),
		"POST /publish/default/k HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n",
	} {
		if !in.Parse([]byte(raw), "/publish/") || in.Size != len(raw) {
			t.Errorf("%q is not plain: %d bytes", raw, in.Size)
		}
		for cut := range raw {
			if plain := in.Parse([]byte(raw[:cut]), "/publish/"); !plain || in.Size != 0 && in.Size != len(raw) {
				t.Fatalf("%q is not plain: %d bytes", raw[:cut], in.Size)
			}
		}
	}
}

// TestInboundLeavesTheRest to net/http, from the first byte that shows it.
func TestInboundLeavesTheRest(t *testing.T) {
	t.Parallel()
	in := newInbound()
	for _, raw := range []string{
		"G", "POST /r", "POST /publish:batch", "PUT", "POST  /publish/", "\r\n",
		"POST /publish/k HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n", "POST /publish/k HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "POST /publish/k HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n\r\n",
		"POST /publish/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n", "POST /publish/k HTTP/1.1\r\nHost: h/i\r\n\r\n", "POST /publish/k HTTP/1.1\r\nHost: h\r\nTrailer: x\r\n\r\n",
		"POST /publish/k HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("A: b\r\n", MaxInboundHead/6),
	} {
		if in.Parse([]byte(raw), "/publish/") {
			t.Errorf("%.80q is plain", raw)
		}
	}
}
