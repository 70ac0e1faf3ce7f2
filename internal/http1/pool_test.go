package http1

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/message"
)

// TestReapClosesTheFreshOnesLater: what one check leaves alone a later one closes, without another message.
func TestReapClosesTheFreshOnesLater(t *testing.T) {
	t.Parallel()
	p := &pool{limit: 10, ttl: 10 * time.Millisecond}
	defer p.close()
	client, server := pair(t, "tcp")
	p.put(newConn(client, nil), time.Now().Add(200*time.Millisecond), noLimit) // fresh for many checks
	server.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := server.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("%v, want the end of the connection", err)
	}
}

func TestPoolKeepsNoMoreThanAllowed(t *testing.T) {
	t.Parallel()
	const workers = 4
	arrived, release := make(chan struct{}, workers), make(chan struct{})
	s := apptest.Listen(t, func(c *apptest.Conn) {
		for {
			if _, err := c.Next(); err != nil {
				return
			}
			arrived <- struct{}{}
			<-release
			c.Send(apptest.Status(204))
		}
	})
	client := newClient(t, s.URL, 2, time.Hour)
	done := make(chan struct{})
	for range workers {
		go func() {
			wantStatus(t, client, 7, 204)
			done <- struct{}{}
		}()
	}
	for range workers {
		<-arrived
	}
	close(release)
	for range workers {
		<-done
	}
	if n := len(client.pool.idle); n != 2 {
		t.Errorf("%d idle connections, want 2", n)
	}
}

func TestKeepAliveHint(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{
		"timeout=5":                    4 * time.Second,
		"max=100, Timeout=10":          9 * time.Second,
		"timeout=2":                    time.Second,
		"timeout=1":                    500 * time.Millisecond,
		"timeout=0":                    0,
		"timeout=99999999999999999999": noLimit,
		"timeout=x":                    noLimit,
		"max=5":                        noLimit,
		"":                             noLimit,
	} {
		if got := keepAlive([]byte(value)); got != want {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
	}
}

// TestIdleConnectionThatTheAppWillClose: after the time that the app has announced, less a margin, a request takes a
// connection of its own: on the idle one it would meet the close.
func TestIdleConnectionThatTheAppWillClose(t *testing.T) {
	t.Parallel()
	const announced = time.Second
	s := apptest.Listen(t, func(c *apptest.Conn) {
		for {
			c.SetReadDeadline(time.Now().Add(announced))
			if _, err := c.Next(); err != nil {
				return
			}
			c.Send(apptest.Status(204, "Keep-Alive: timeout=1"))
		}
	})
	client := newClient(t, s.URL, 16, time.Hour)
	wantStatus(t, client, 7, 204)
	time.Sleep(announced * 6 / 10) // the margin is half of it
	wantStatus(t, client, 7, 204)
	if n := s.Accepted(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

// pair returns the two ends of a connection.
func pair(tb testing.TB, network string) (client, server net.Conn) {
	tb.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(tb.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if client, err = net.Dial(network, l.Addr().String()); err != nil {
		tb.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// blind makes c pass for quiet whatever happened to it: the app hung up between the check and the write.
func blind(c *conn) *conn {
	c.look = func(uintptr) { c.idle = true }
	return c
}

// dead returns a connection that cannot take a single byte any more.
func dead(tb testing.TB, network string) net.Conn {
	tb.Helper()
	client, server := pair(tb, network)
	if t, ok := server.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	server.Close()
	_, _ = client.Read(make([]byte, 1)) // until the reset is here
	return client
}

// The one automatic re-send: the idle connection did not take a single byte.
func TestRequestMovesToAFreshConnectionOnlyIfNothingWasWritten(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "unix"} {
		for _, size := range []int{10, smallBody + 1, inlineBody + 1} {
			s, client := listen(t, 204)
			client.pool.put(blind(newConn(dead(t, network), nil)), time.Now(), noLimit)
			for range 2 { // the second would stumble over whatever the first had left behind
				wantStatus(t, client, size, 204)
			}
			if r := s.Requests(); len(r) != 2 || !bytes.Equal(r[0].Raw, r[1].Raw) || s.Accepted() != 1 {
				t.Errorf("%s, %d bytes: %d requests on %d connections, want 2 the same on 1", network, size, len(r), s.Accepted())
			}
		}
	}
}

// An app may say goodbye before it hangs up. What was there before a byte was sent answers nothing.
func TestAnswerToNothingIsNoAnswer(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, smallBody + 1, inlineBody + 1} {
		_, client := listen(t, 500)
		near, far := pair(t, "unix")
		_, _ = io.WriteString(far, apptest.Status(200))
		far.Close()
		client.pool.put(blind(newConn(near, nil)), time.Now(), noLimit)
		wantStatus(t, client, size, 500)
	}
}

// The app has closed, but its kernel has not yet said so: the bytes leave, and it cannot be known whether they were
// read.
func TestRequestThatLeftIsNotSentAgain(t *testing.T) {
	t.Parallel()
	s, client := listen(t, 204)
	near, far := pair(t, "tcp")
	_ = far.(*net.TCPConn).CloseWrite()
	client.pool.put(blind(newConn(near, nil)), time.Now(), noLimit)
	_, f, err := do(t.Context(), client, 7, time.Minute)
	wantFailure(t, f, err, message.FailureReset, "closed the connection")
	if s.Accepted() != 0 {
		t.Error("the request was sent again")
	}
}

// A fresh connection that takes nothing is an app that is not there.
func TestFreshConnectionThatTakesNothingIsRefused(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, inlineBody + 1} {
		client := newClient(t, "http://127.0.0.1:1/", 16, time.Hour)
		client.connect = func(context.Context, string, string) (net.Conn, error) { return dead(t, "tcp"), nil }
		_, f, err := do(t.Context(), client, size, time.Minute)
		wantFailure(t, f, err, message.FailureRefused, "refused")
		if !errors.Is(err, ErrRefusedByReset) {
			t.Errorf("%v is not ErrRefusedByReset", err)
		}
	}
}
