package dispatch

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/message"
)

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
	defer l.Close()
	if client, err = net.Dial(network, l.Addr().String()); err != nil {
		tb.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// blind makes c pass for quiet whatever happened to it: the app hung up between the look and the write.
func blind(c *conn) *conn {
	c.look = func(uintptr) { c.idle = true }
	return c
}

// dead returns a connection that cannot take a single byte any more.
func dead(tb testing.TB, network string) net.Conn {
	tb.Helper()
	client, server := pair(tb, network)
	if t, ok := server.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	server.Close()
	client.Read(make([]byte, 1)) // until the reset is here
	return client
}

// The one automatic re-send: the idle connection did not take a single byte.
func TestRequestMovesToAFreshConnectionOnlyIfNothingWasWritten(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "unix"} {
		for _, size := range []int{10, smallBody + 1, inlineBody + 1} {
			s, target := listen(t, 204)
			target.pool.put(blind(newConn(dead(t, network), nil)), time.Now(), noLimit)
			m := sized(size)
			for range 2 { // the second would stumble over whatever the first had left behind
				wantStatus(t, dispatch(t, target, m), 204)
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
		_, target := listen(t, 500)
		client, server := pair(t, "unix")
		io.WriteString(server, apptest.Status(200))
		server.Close()
		target.pool.put(blind(newConn(client, nil)), time.Now(), noLimit)
		m := sized(size)
		wantStatus(t, dispatch(t, target, m), 500)
	}
}

// The app has closed, but its kernel has not yet said so: the bytes leave, and nobody can know whether they were read.
func TestRequestThatLeftIsNotSentAgain(t *testing.T) {
	t.Parallel()
	s, target := listen(t, 204)
	client, server := pair(t, "tcp")
	server.(*net.TCPConn).CloseWrite()
	target.pool.put(blind(newConn(client, nil)), time.Now(), noLimit)
	wantFailure(t, dispatch(t, target, sample()), message.FailureReset, "closed the connection")
	if s.Accepted() != 0 {
		t.Error("the request was sent again")
	}
}

// A fresh connection that takes nothing is an app that is not there.
func TestFreshConnectionThatTakesNothingIsRefused(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, inlineBody + 1} {
		target := newTarget(t, "http://127.0.0.1:1/")
		target.dialer.connect = func(context.Context, string, string) (net.Conn, error) { return dead(t, "tcp"), nil }
		m := sized(size)
		wantFailure(t, dispatch(t, target, m), message.FailureRefused, "refused")
	}
}

func TestNothingWrittenForAnotherReason(t *testing.T) {
	t.Parallel()
	t.Run("time is up", func(t *testing.T) {
		target := newTarget(t, "http://127.0.0.1:1/", timeout(1))
		client, _ := pair(t, "tcp")
		target.dialer.connect = func(context.Context, string, string) (net.Conn, error) { return client, nil }
		wantFailure(t, dispatch(t, target, sample()), message.FailureTimeout, "timeout")
	})
	t.Run("stopped", func(t *testing.T) {
		target := newTarget(t, "http://127.0.0.1:1/")
		ctx, cancel := context.WithCancel(context.Background())
		client, server := pair(t, "tcp")
		target.dialer.connect = func(context.Context, string, string) (net.Conn, error) {
			cancel()
			return client, nil
		}
		wantFailure(t, target.Dispatch(ctx, sample()), message.FailureInterrupted, "canceled")
		if _, err := io.ReadAll(server); err != nil { // the connection is closed, with or without the request
			t.Error(err)
		}
	})
}
