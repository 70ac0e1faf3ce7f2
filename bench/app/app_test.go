package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

// startApp returns the books, the address of the data listener and the URL of the control listener.
func startApp(t *testing.T) (b *books, data, control string) {
	t.Helper()
	b = newBooks()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	go b.accept(l)
	server := httptest.NewServer(b.control())
	t.Cleanup(func() { _ = l.Close(); server.Close() })
	return b, l.Addr().String(), server.URL
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c := must.Get(net.Dial("tcp", addr))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func request(id, body string) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: app\r\nContent-Length: %d\r\nAmqp-Message-Id: %s\r\n\r\n%s", len(body), id, body)
}

// send writes the parts one by one and reads one answer.
func send(t *testing.T, c net.Conn, parts ...string) {
	t.Helper()
	for _, p := range parts {
		must.Get(io.WriteString(c, p))(t)
		time.Sleep(5 * time.Millisecond) // so that the parts arrive one by one; without this the test still passes
	}
	resp := must.Get(http.ReadResponse(bufio.NewReader(c), nil))(t)
	if resp.StatusCode != http.StatusNoContent {
		t.Fatalf("answered %s", resp.Status)
	}
}

func TestEveryRequestIsInTheBooks(t *testing.T) {
	t.Parallel()
	b, data, control := startApp(t)
	resp := must.Get(http.Post(control+"/reset", "application/json", strings.NewReader(`{"expect":500,"latency":true}`)))(t)
	_ = resp.Body.Close()
	c := dial(t, data)
	send(t, c, request("0", ""))
	send(t, c, request("1", "x"))
	large := request("2", strings.Repeat("x", 3<<20))
	send(t, c, large[:10], large[10:70], large[70:1<<20], large[1<<20:])
	timed := request("3", fmt.Sprintf(`{"t":%d,"x":"......."}`, time.Now().Add(-time.Hour).UnixNano()))
	at := strings.Index(timed, `{"t":`) + 7
	send(t, c, timed[:at-7], timed[at-7:at], timed[at:])
	send(t, c, request("3", "again"))
	send(t, c, request("500", "behind the last one, in the same word of the bitmap"))
	send(t, c, request("x", "no number"))
	send(t, c, "GET /healthz HTTP/1.1\r\nHost: app\r\n\r\n") // a probe is not a message
	send(t, dial(t, data), request("499", "x"))

	s := b.stats()
	if s.Received != 8 || s.Distinct != 5 || s.Unknown != 2 || s.Connections != 2 || s.MaxInflight != 1 {
		t.Errorf("in the books: %+v", s)
	}
	if len(s.Latencies) != 1 || time.Duration(s.Latencies[0]) < time.Hour {
		t.Errorf("latencies: %v", s.Latencies)
	}
	if s.First == 0 || s.Last < s.First {
		t.Errorf("first at %d, last at %d", s.First, s.Last)
	}
}
