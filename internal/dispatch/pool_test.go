package dispatch

import (
	"testing"
	"time"

	"sidecar/internal/apptest"
)

func TestIdleConnectionExpires(t *testing.T) {
	s := apptest.Listen(t, apptest.Answer(apptest.Status(204)))
	target := newTarget(t, s.URL, func(o *Options) { o.IdleTimeout = 1 })
	for range 3 {
		wantStatus(t, dispatch(t, target, sample()), 204)
	}
	if s.Accepted() != 3 {
		t.Errorf("%d connections, want 3", s.Accepted())
	}
}

// An idle connection is closed without any further message.
func TestIdleConnectionIsReaped(t *testing.T) {
	closed := make(chan struct{})
	script := func(c *apptest.Conn) {
		apptest.Answer(apptest.Status(204))(c)
		closed <- struct{}{}
	}
	secure, trust := apptest.ListenTLS(t, script)
	for _, s := range []*apptest.Server{apptest.Listen(t, script), secure} {
		target := newTarget(t, s.URL, func(o *Options) { o.IdleTimeout, o.TLS = 10*time.Millisecond, trust })
		for range 2 {
			wantStatus(t, dispatch(t, target, sample()), 204)
			<-closed
		}
	}
}

func TestPoolKeepsNoMoreThanAllowed(t *testing.T) {
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
	target := newTarget(t, s.URL, func(o *Options) { o.MaxIdle = 2 })
	done := make(chan struct{})
	for range workers {
		go func() {
			wantStatus(t, dispatch(t, target, sample()), 204)
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
	if n := len(target.pool.idle); n != 2 {
		t.Errorf("%d idle connections, want 2", n)
	}
}

func TestCloseClosesIdleConnections(t *testing.T) {
	closed := make(chan struct{}, 2)
	s := apptest.Listen(t, func(c *apptest.Conn) {
		apptest.Answer(apptest.Status(204))(c)
		closed <- struct{}{}
	})
	target := newTarget(t, s.URL)
	wantStatus(t, dispatch(t, target, sample()), 204)
	target.Close()
	<-closed
	wantStatus(t, dispatch(t, target, sample()), 204) // still answers, and keeps nothing
	<-closed
}

func TestKeepAliveHint(t *testing.T) {
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
	s := apptest.Listen(t, apptest.Answer(apptest.Status(204, "Keep-Alive: timeout=0")))
	target := newTarget(t, s.URL)
	for range 3 {
		wantStatus(t, dispatch(t, target, sample()), 204)
	}
	if s.Accepted() != 3 {
		t.Errorf("%d connections, want 3", s.Accepted())
	}
}
