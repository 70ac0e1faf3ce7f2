package publish

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

// roundTrip sends bytes on a connection and reads one answer.
func (r *rig) roundTrip(c net.Conn, request string) reply {
	r.Helper()
	must.Get(io.WriteString(c, request))(r)
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		r.Fatalf("%.60q: %v", request, err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil && !strings.Contains(err.Error(), "reset") {
		r.Fatalf("%.60q: %v", request, err)
	}
	return reply{a, string(b)}
}

// TestAnswersBeforeTheBody: what is known before the body is read is answered before it has come, and ends the connection.
// The bodies here never come, and a request may take an hour.
func TestAnswersBeforeTheBody(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.Timeout, o.MaxInflight, o.MaxBody = time.Hour, 1, 1000 })
	early := func(what, target, headers string, status int, c code, text string) {
		t.Helper()
		for _, length := range []string{"Content-Length: 100", "Transfer-Encoding: chunked"} {
			conn := dial(t, r.addr)
			got := r.roundTrip(conn, fmt.Sprintf("%s HTTP/1.1\r\nHost: %s\r\n%s\r\n%s\r\n64\r\nx", target, r.addr, length, headers))
			r.want(what, got, status, c, text)
			if !got.Close {
				t.Errorf("%s: the connection stays open", what)
			}
			conn.Close()
		}
	}
	early("an alias", "POST /publish/none/k", "", http.StatusForbidden, forbidden, "no exchange alias")
	early("a header", "POST /publish/default/k", "Amqp-Priority: x\r\n", http.StatusBadRequest, invalid, "Amqp-Priority")
	early("a query", "POST /publish/default/k?x", "", http.StatusBadRequest, invalid, "query")
	early("a method", "PUT /publish/default/k", "", http.StatusMethodNotAllowed, badMethod, "")
	early("a path", "POST /elsewhere", "", http.StatusNotFound, notFound, "")
	early("a probe", "POST /readyz", "", http.StatusMethodNotAllowed, badMethod, "")
	early("a batch", "POST /publish:batch", "", http.StatusUnsupportedMediaType, invalid, "jsonl")
	early("another site", "POST /publish/default/k", "Origin: http://evil.example\r\n", http.StatusForbidden, forbidden, "")
	r.server.inflight.Enter()
	early("no room", "POST /publish/default/k", "", http.StatusServiceUnavailable, busy, "Nothing was sent")
	r.server.inflight.Leave()
	r.server.stopping.Store(true)
	early("a stop", "POST /publish/default/k", "", http.StatusServiceUnavailable, stopping, "Nothing was sent")
	r.server.stopping.Store(false)

	conn := dial(t, r.addr)
	for _, request := range []string{
		"POST /publish/default/k HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", "POST /publish/missing/k HTTP/1.1\r\nHost: h\r\n\r\n", "GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n",
		"POST /publish/default/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
		"POST /publish:batch HTTP/1.1\r\nHost: h\r\nContent-Type: application/jsonl\r\nContent-Length: 19\r\n\r\n{\"routing_key\":\"k\"}",
	} {
		if got := r.roundTrip(conn, strings.Replace(request, "Host: h", "Host: "+r.addr, 1)); got.Close {
			t.Errorf("%.40q ended the connection", request)
		}
	}
	tooMuch := "POST /publish/default/k HTTP/1.1\r\nHost: h\r\nAmqp-Header-A: " + strings.Repeat("x", 200<<10) + "\r\n\r\n"
	if got := r.roundTrip(dial(t, r.addr), tooMuch); got.StatusCode != http.StatusRequestHeaderFieldsTooLarge || !got.Close {
		t.Errorf("too large headers: %d %v", got.StatusCode, got.Header)
	}
}
