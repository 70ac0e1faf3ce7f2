package httpguard

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/budget"
	"sidecar/internal/testkit/must"
)

// directly serves requests below /d/ without net/http. They are answered with their body and with who served them; those of
// /d/block wait for release.
type directly struct {
	*testing.T

	server  *Server
	addr    string
	memory  *budget.Account
	blocked atomic.Int64
	release chan struct{}
	served  chan error
}

func serveDirectly(t *testing.T, change func(*Server)) *directly {
	t.Helper()
	d := &directly{T: t, release: make(chan struct{}), served: make(chan error, 1), memory: budget.New(1 << 20).Account(budget.Publish)}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		Received(r)
		if r.URL.Path == "/d/block" {
			d.blocked.Add(1)
			<-d.release
		}
		by := "net/http"
		if _, ok := w.(*answer); ok {
			by = "direct"
		}
		w.Header().Set("X-By", by)
		w.Header().Set("X-Text", "a\r\nX-Injected: b")
		_, _ = w.Write(body)
	})
	d.server = &Server{
		Direct: "/d/", Conns: 100, Memory: d.memory, Listener: must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t),
		Server: &http.Server{ReadHeaderTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute, Handler: handler},
	}
	if change != nil {
		change(d.server)
	}
	d.addr = d.server.Listener.Addr().String()
	d.server.bound()
	go func() { d.served <- d.server.Serve() }()
	t.Cleanup(func() {
		d.server.Close()
		must.Do(t, <-d.served)
		brokertest.Eventually(t, time.Minute, "all memory is given back", func() bool { return d.memory.Held() == 0 })
	})
	return d
}

func (d *directly) dial() (net.Conn, *bufio.Reader) {
	d.Helper()
	c := must.Get(net.Dial("tcp", d.addr))(d)
	d.Cleanup(func() { _ = c.Close() })
	must.Do(d, c.SetDeadline(time.Now().Add(30*time.Second)))
	return c, bufio.NewReader(c)
}

func post(path, body, headers string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\n%sContent-Length: %d\r\n\r\n%s", path, headers, len(body), body)
}

// answered reads an answer with this body that was served by by.
func (d *directly) answered(what string, in *bufio.Reader, body, by string) {
	d.Helper()
	a, err := http.ReadResponse(in, nil)
	if err != nil {
		d.Fatalf("%s: %v", what, err)
	}
	got := must.Get(io.ReadAll(a.Body))(d)
	if a.StatusCode != http.StatusOK || string(got) != body || a.Header.Get("X-By") != by || a.Header.Get("X-Injected") != "" || a.Header.Get("Date") == "" {
		d.Errorf("%s: %d %.40q %v, want %.40q by %s", what, a.StatusCode, got, a.Header, body, by)
	}
}

// TestDirect: requests are answered in their order however they arrive, until one needs net/http, which has the connection
// from then on.
func TestDirect(t *testing.T) {
	t.Parallel()
	d := serveDirectly(t, nil)
	c, in := d.dial()
	send := func(parts ...string) {
		t.Helper()
		for _, part := range parts {
			must.Get(io.WriteString(c, part))(t)
		}
	}
	send(post("/d/a", "one", ""), post("/d/a", "two", "")+post("/d/a", "three", ""))
	d.answered("one", in, "one", "direct")
	d.answered("two", in, "two", "direct")
	d.answered("three, in one packet with two", in, "three", "direct")
	large := strings.Repeat("x", maxDirect-200)
	send(post("/d/a", large, ""))
	d.answered("one larger than the buffer", in, large, "direct")
	send("POST /d/a HTTP/1.1\r\nHost: h\r\n\r\n")
	d.answered("no body", in, "", "direct")
	send("POST /d/a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\ny\r\n0\r\n\r\n", post("/d/a", "behind", ""))
	d.answered("chunked", in, "y", "net/http")
	d.answered("behind it", in, "behind", "net/http")
}

// TestDirectLeavesWhatIsSlowOrLarge to net/http.
func TestDirectLeavesWhatIsSlowOrLarge(t *testing.T) {
	t.Parallel()
	d := serveDirectly(t, nil)
	huge := strings.Repeat("x", 2*maxDirect)
	for what, parts := range map[string][2]string{
		"half a head": {"POST /d/a HTTP/1.1\r\nHo", "st: h\r\nContent-Length: 1\r\n\r\nx"},
		"half a body": {"POST /d/a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n", "x"},
		"a large one": {post("/d/a", huge, ""), ""},
	} {
		c, in := d.dial()
		must.Get(io.WriteString(c, parts[0]))(t)
		if parts[1] != "" {
			brokertest.Eventually(t, time.Minute, "it was given to net/http", func() bool { return d.handedOver(c) })
			must.Get(io.WriteString(c, parts[1]))(t)
		}
		d.answered(what, in, map[bool]string{true: huge, false: "x"}[parts[1] == ""], "net/http")
	}
	// The client has sent all that it will: net/http knows what to answer.
	for request, status := range map[string]int{
		"POST /d/a HTTP/1.1\nHost: h\nContent-Length: 1\n\nx": http.StatusOK, "POST /d/a HTTP/1.1\r\nHo": http.StatusBadRequest,
		"POST /d/a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n": http.StatusOK,
	} {
		c, in := d.dial()
		must.Get(io.WriteString(c, request))(t)
		must.Do(t, c.(*net.TCPConn).CloseWrite())
		if a := must.Get(http.ReadResponse(in, nil))(t); a.StatusCode != status {
			t.Errorf("%q: %d, want %d", request, a.StatusCode, status)
		}
	}
	// Without memory for a larger buffer, too.
	must.Do(t, map[bool]error{false: io.ErrShortBuffer}[d.memory.Take(d.memory.Limit())])
	c, in := d.dial()
	body := strings.Repeat("x", 2*directBuffer)
	must.Get(io.WriteString(c, post("/d/a", body, "")))(t)
	d.answered("no memory", in, body, "net/http")
	d.memory.Give(d.memory.Limit())
}

func (d *directly) handedOver(client net.Conn) bool {
	l := d.server.bounds
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if c.RemoteAddr().String() == client.LocalAddr().String() {
			return !c.direct
		}
	}
	return false
}

// TestDirectShutdown: idle connections are closed, a request that is being answered is finished, and no other one begins.
func TestDirectShutdown(t *testing.T) {
	t.Parallel()
	d := serveDirectly(t, nil)
	_, idle := d.dial()
	busy, answer := d.dial()
	must.Get(io.WriteString(busy, post("/d/block", "x", "")))(t)
	brokertest.Eventually(t, time.Minute, "it is being answered", func() bool { return d.blocked.Load() == 1 })
	ended := make(chan error)
	go func() { ended <- d.server.Shutdown(t.Context()) }()
	if _, err := idle.ReadByte(); err == nil {
		t.Error("an idle connection got an answer")
	}
	select {
	case err := <-ended:
		t.Fatalf("the shutdown ended before the request: %v", err)
	default:
	}
	close(d.release)
	a := must.Get(http.ReadResponse(answer, nil))(t)
	if got := must.Get(io.ReadAll(a.Body))(t); string(got) != "x" || !a.Close {
		t.Errorf("%q, and the connection stays open: %v", got, !a.Close)
	}
	must.Do(t, <-ended)
	if c, err := net.Dial("tcp", d.addr); err == nil {
		c.Close()
		t.Error("it still listens")
	}
}

// TestDirectShutdownEndsWithItsContext, whatever is still being answered.
func TestDirectShutdownEndsWithItsContext(t *testing.T) {
	t.Parallel()
	d := serveDirectly(t, nil)
	busy, _ := d.dial()
	must.Get(io.WriteString(busy, post("/d/block", "x", "")))(t)
	brokertest.Eventually(t, time.Minute, "it is being answered", func() bool { return d.blocked.Load() == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.server.Shutdown(ctx); err == nil {
		t.Error("it did not say so")
	}
	close(d.release)
}

// TestDirectIdle: a connection without a request is closed after IdleTimeout.
func TestDirectIdle(t *testing.T) {
	t.Parallel()
	d := serveDirectly(t, func(s *Server) { s.IdleTimeout = 100 * time.Millisecond })
	c, in := d.dial()
	must.Get(io.WriteString(c, post("/d/a", "x", "")))(t)
	d.answered("the first", in, "x", "direct")
	if _, err := in.ReadByte(); err == nil {
		t.Error("it stays open")
	}
}

// TestDirectMakesRoom: the oldest connection without a complete request is closed for another one.
func TestDirectMakesRoom(t *testing.T) {
	t.Parallel()
	d := serveDirectly(t, func(s *Server) { s.Conns = 2 })
	busy, answer := d.dial()
	must.Get(io.WriteString(busy, post("/d/block", "x", "")))(t)
	brokertest.Eventually(t, time.Minute, "it is being answered", func() bool { return d.blocked.Load() == 1 })
	idle, closed := d.dial()
	must.Get(io.WriteString(idle, post("/d/a", "x", "")))(t)
	d.answered("the idle one, before", closed, "x", "direct")
	another, in := d.dial()
	must.Get(io.WriteString(another, post("/d/a", "y", "")))(t)
	d.answered("another one", in, "y", "direct")
	if _, err := closed.ReadByte(); err == nil {
		t.Error("the idle one stays open")
	}
	close(d.release)
	d.answered("the busy one", answer, "x", "direct")
}
