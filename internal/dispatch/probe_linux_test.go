package dispatch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/message"
)

// TestNoConnectionInTime: an app that hangs takes no connection, or answers no TLS handshake. It is away, as an app that
// refuses, but no text calls that refused.
func TestNoConnectionInTime(t *testing.T) {
	t.Parallel()
	secure := apptest.Listen(t, func(c *apptest.Conn) { c.WaitClosed() })
	handshake := strings.Replace(secure.URL, "http:", "https:", 1)
	short := func(o *Options) { o.HealthTimeout = 100 * time.Millisecond }
	path := func(o *Options) { o.HealthPath = "/health" }
	full := fullListener(t)
	for name, target := range map[string]*Target{
		"connect": newTarget(t, full, short), "GET": newTarget(t, full, path, short), "TLS": newTarget(t, handshake, path, short),
	} {
		err := target.Probe(context.Background())
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "the app did not answer in time: ") || strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := dispatch(t, newTarget(t, full, timeout(100*time.Millisecond)), sample())
	wantFailure(t, o, message.FailureRefused, "connect to the app: timeout: the app did not answer in time: dial tcp")
}

// fullListener returns the URL of a port that answers no SYN: its queue of connections to accept is full.
func fullListener(t *testing.T) string {
	t.Helper()
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(s) })
	if err = errors.Join(syscall.Bind(s, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(s, 0)); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(s)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
	for range 100 {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return "http://" + addr
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("the queue does not fill")
	return ""
}
