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

// call calls the control listener and returns its status.
func call(t *testing.T, url, body string) int {
	t.Helper()
	resp := must.Get(http.Post(url, "application/json", strings.NewReader(body)))(t)
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode
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
	call(t, control+"/reset", `{"expect":500,"latency":true}`)
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

// TestMessagesOfABatchAreCounted, however their request is cut, and each says when it was published.
func TestMessagesOfABatchAreCounted(t *testing.T) {
	t.Parallel()
	b, data, control := startApp(t)
	call(t, control+"/reset", `{"expect":1000,"latency":true,"item":"\n"}`)
	reached := make(chan int)
	go func() { reached <- call(t, control+"/wait", `{"received":305,"timeout":60000000000}`) }()
	published := time.Now().Add(-time.Hour).UnixNano()
	line := fmt.Sprintf(`{"message_id":"1","body":{"t":%d,"x":"%s"}}`+"\n", published, strings.Repeat("x", 1000))
	c := dial(t, data)
	for _, n := range []int{300, 7} { // the goal is passed, not met
		whole := request("", strings.Repeat(line, n))
		send(t, c, whole[:50], whole[50:90], whole[90:])
	}
	if code := <-reached; code != http.StatusOK {
		t.Errorf("all have come: %d", code)
	}
	s := b.stats()
	if s.Received != 307 || s.Distinct != 0 || s.Unknown != 0 || s.MaxInflight != 1 || len(s.Latencies) != 307 {
		t.Errorf("in the books: %d latencies, %+v", len(s.Latencies), s)
	}
	if time.Duration(s.Latencies[0]) < time.Hour || time.Duration(s.Latencies[306]) > 2*time.Hour {
		t.Errorf("latencies from %d to %d", s.Latencies[0], s.Latencies[306])
	}
	must.Get(io.WriteString(c, request("", line)[:200]))(t)
	_ = c.(*net.TCPConn).CloseWrite()
	if _, err := c.Read(make([]byte, 1)); err == nil || b.received.Load() != 307 {
		t.Errorf("half a batch was answered, or received: %d", b.received.Load())
	}
}

func TestAnswersAreHeldUntilReleased(t *testing.T) {
	t.Parallel()
	b, data, control := startApp(t)
	call(t, control+"/reset", `{"expect":3,"hold":true}`)
	answered := make(chan struct{}, 3)
	for i := range 3 {
		c := dial(t, data)
		go func() {
			_, _ = io.WriteString(c, request(fmt.Sprint(i), "x"))
			_, _ = c.Read(make([]byte, 100))
			answered <- struct{}{}
		}()
	}
	if code := call(t, control+"/wait", `{"inflight":3,"timeout":60000000000}`); code != http.StatusOK {
		t.Fatalf("waited for 3 in flight: %d", code)
	}
	select {
	case <-answered:
		t.Fatal("an answer was not held")
	default:
	}
	if s := b.stats(); s.Released != 0 {
		t.Errorf("released at %d", s.Released)
	}
	for b.stats().Received < 3 { // one that is in flight is counted a moment later
		time.Sleep(time.Millisecond)
	}
	call(t, control+"/release", "")
	for range 3 {
		<-answered
	}
	if s := b.stats(); s.MaxInflight != 3 || s.Held != 3 || s.Released < s.First {
		t.Errorf("in the books: %+v", s)
	}
	if n := b.inflight.Load(); n != 0 {
		t.Errorf("%d in flight after the last answer", n)
	}
}
