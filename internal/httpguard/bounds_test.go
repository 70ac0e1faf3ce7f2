package httpguard

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/budget"
	"sidecar/internal/testkit/must"
)

// bounded serves within bounds: /block answers when release is closed, everything else at once, when the body has been
// read.
func bounded(t *testing.T, most int, memory *budget.Account) (addr string, started chan struct{}, release chan struct{}) {
	t.Helper()
	started, release = make(chan struct{}, 10), make(chan struct{})
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			started <- struct{}{}
		}
		if r.URL.Path == "/unread" {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		Received(r)
		if r.URL.Path == "/block" {
			started <- struct{}{}
			<-release
		}
	})}
	ln := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	served := make(chan error, 1)
	go func() { served <- (&Server{Server: srv, Listener: ln, Conns: most, Memory: memory}).Serve() }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		brokertest.Eventually(t, time.Minute, "no memory is held after the end", func() bool { return memory.Held() == 0 })
	})
	return ln.Addr().String(), started, release
}

type client struct {
	net.Conn

	t  *testing.T
	in *bufio.Reader
}

func connect(t *testing.T, addr, text string) *client {
	t.Helper()
	c := must.Get((&net.Dialer{}).DialContext(t.Context(), "tcp", addr))(t)
	t.Cleanup(func() { _ = c.Close() })
	_, _ = io.WriteString(c, text)
	return &client{c, t, bufio.NewReader(c)}
}

// status reads an answer; 0: the connection was closed instead.
func (c *client) status() int {
	c.t.Helper()
	must.Do(c.t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
	resp, err := http.ReadResponse(c.in, nil)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatal("no answer")
	}
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

const whole = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"

// TestTheOldestUnfinishedMakesRoom: idle, with half a header or half a body. One whose request is complete stays.
func TestTheOldestUnfinishedMakesRoom(t *testing.T) {
	t.Parallel()
	addr, started, release := bounded(t, 3, nil)
	idle := connect(t, addr, whole)
	if got := idle.status(); got != 200 {
		t.Fatal(got)
	}
	blocked := connect(t, addr, strings.Replace(whole, "/ ", "/block ", 1))
	<-started
	slow := connect(t, addr, "POST /slow HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab")
	<-started
	half := connect(t, addr, "GET / HTTP/1.1\r\n") // in the place of the idle one
	if got := idle.status(); got != 0 {
		t.Errorf("the idle one got %d", got)
	}
	if got := connect(t, addr, whole).status(); got != 200 { // in the place of the slow body
		t.Errorf("a new one got %d", got)
	}
	if got := slow.status(); got != 0 {
		t.Errorf("the slow body got %d", got)
	}
	_, _ = io.WriteString(half, "Host: h\r\n\r\n")
	if got := half.status(); got != 200 {
		t.Errorf("the second half of a header got %d", got)
	}
	close(release)
	if got := blocked.status(); got != 200 {
		t.Errorf("the one with a complete request got %d", got)
	}
}

func TestANewConnectionIsClosedWhereNoneMakesRoom(t *testing.T) {
	t.Parallel()
	addr, started, release := bounded(t, 1, nil)
	blocked := connect(t, addr, strings.Replace(whole, "/ ", "/block ", 1))
	<-started
	if got := connect(t, addr, whole).status(); got != 0 {
		t.Errorf("one more got %d", got)
	}
	close(release)
	if got := blocked.status(); got != 200 {
		t.Errorf("the first got %d", got)
	}
}

// TestHeadersTakeMemory, which the oldest unfinished one gives back, and who cannot get it is closed. What a probe
// sends is free.
func TestHeadersTakeMemory(t *testing.T) {
	t.Parallel()
	b := budget.New(1 << 20)
	memory := b.Account(budget.Requests)
	addr, _, _ := bounded(t, 100, memory)
	lines := "GET / HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("a:b\r\n", 2000) // 340 KiB of 512
	first := connect(t, addr, lines)
	brokertest.Eventually(t, time.Minute, "the header is counted", func() bool { return memory.Held() >= 300<<10 })
	second := connect(t, addr, lines)
	if got := first.status(); got != 0 {
		t.Errorf("the first got %d", got)
	}
	_, _ = io.WriteString(second, "\r\n")
	if got := second.status(); got != 200 {
		t.Errorf("the second got %d", got)
	}
	brokertest.Eventually(t, time.Minute, "its memory is free", func() bool { return memory.Held() == 0 })
	b.Account(budget.Deliveries).Take(b.Limit())
	if got := connect(t, addr, lines+"\r\n").status(); got != 0 {
		t.Errorf("without memory a large header got %d", got)
	}
	if got := connect(t, addr, whole).status(); got != 200 {
		t.Errorf("without memory a small header got %d", got)
	}
}

func TestTwoLengths(t *testing.T) {
	t.Parallel()
	addr, _, _ := bounded(t, 100, nil)
	for header, want := range map[string]int{
		"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n": 400, "Transfer-Encoding: chunked\r\ncontent-LENGTH : 3\r\n": 400,
		"Transfer-Encoding: chunked\r\nX-Content-Length: 3\r\nContent-Lengths: 1\r\n": 200, "Transfer-Encoding: chunked\r\n": 200,
	} {
		for _, step := range []int{1000, 7} {
			c := connect(t, addr, "")
			text := fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\n%s\r\n0\r\n\r\n", header)
			for len(text) > 0 {
				n := min(step, len(text))
				_, _ = io.WriteString(c, text[:n])
				text = text[n:]
			}
			got := c.status()
			if got != want {
				t.Errorf("%q in steps of %d: %d, want %d", header, step, got, want)
			}
			if _, _ = io.WriteString(c, whole); want == 400 && c.status() != 0 {
				t.Errorf("%q: the connection is still open", header)
			}
		}
	}
}

// TestUnreadBodyIsNoHeader: package net/http reads past a body that the handler has left, and it counts as no header.
func TestUnreadBodyIsNoHeader(t *testing.T) {
	t.Parallel()
	const size = 200_000
	memory := budget.New(1 << 20).Account(budget.Requests) // too little for so many lines of a header
	addr, _, _ := bounded(t, 10, memory)
	for _, before := range []string{"", whole} { // with whole, both headers come in one read
		c := connect(t, addr, before+fmt.Sprintf("POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", size))
		if before != "" && c.status() != http.StatusOK {
			t.Error("the first request was refused")
		}
		_, _ = io.WriteString(c, strings.Repeat("\n", size))
		if status := c.status(); status != http.StatusOK {
			t.Errorf("%q before: %d", before, status)
		}
		_, _ = io.WriteString(c, whole) // the connection is still there
		if status := c.status(); status != http.StatusOK || memory.Held() != 0 {
			t.Errorf("%q before: %d, %d bytes are held", before, status, memory.Held())
		}
	}
}

// TestNothingIsClosedInVain: a header for which there is no memory closes no connection that holds none.
func TestNothingIsClosedInVain(t *testing.T) {
	t.Parallel()
	b := budget.New(1 << 20)
	others := b.Account(budget.Deliveries)
	others.Take(1 << 20)
	defer others.Give(1 << 20)
	addr, _, _ := bounded(t, 10, b.Account(budget.Requests))
	idle := connect(t, addr, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if status := idle.status(); status != http.StatusOK {
		t.Fatalf("%d", status)
	}
	large := connect(t, addr, "GET / HTTP/1.1\r\nHost: h\r\nX: "+strings.Repeat("x", 16<<10)+"\r\n\r\n")
	if status := large.status(); status != 0 {
		t.Errorf("a header without memory: %d", status)
	}
	_, _ = io.WriteString(idle, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if status := idle.status(); status != http.StatusOK {
		t.Errorf("the idle connection: %d", status)
	}
}
