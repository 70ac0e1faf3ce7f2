package dispatch

import (
	"io"
	"net"
	"testing"
	"time"

	"sidecar/internal/apptest"
)

func TestIdleConnectionExpires(t *testing.T) {
	t.Parallel()
	s, target := listen(t, 204, func(o *Options) { o.IdleTimeout = 1 })
	wantStatuses(t, target, 3, 204)
	wantSeen(t, s, 3, 3)
}

// An idle connection is closed without any further message.
func TestIdleConnectionIsReaped(t *testing.T) {
	t.Parallel()
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

func TestReapLeavesTheFreshOnes(t *testing.T) {
	t.Parallel()
	p := newPool(10, time.Hour)
	defer p.close()
	for _, keep := range []time.Duration{0, noLimit} {
		client, _ := pair(t, "tcp")
		p.put(newConn(client, nil), time.Now(), keep)
	}
	p.reap()
	if len(p.idle) != 1 || p.timer == nil {
		t.Errorf("%d idle, timer %v, want 1 and a timer", len(p.idle), p.timer)
	}
}

// TestReapComesBackForTheFreshOnes: what one look leaves alone a later one closes, without another message.
func TestReapComesBackForTheFreshOnes(t *testing.T) {
	t.Parallel()
	p := newPool(10, 10*time.Millisecond)
	defer p.close()
	client, server := pair(t, "tcp")
	p.put(newConn(client, nil), time.Now().Add(200*time.Millisecond), noLimit) // fresh for many looks
	server.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := server.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("%v, want the end of the connection", err)
	}
}

func TestQuiet(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "unix"} {
		for name, disturb := range map[string]func(net.Conn){
			"a byte": func(c net.Conn) { c.Write([]byte{0}) },
			"end":    func(c net.Conn) { c.Close() },
		} {
			client, server := pair(t, network)
			c := newConn(client, nil)
			if !c.quiet() {
				t.Errorf("%s: not quiet from the start", network)
			}
			disturb(server)
			for deadline := time.Now().Add(10 * time.Second); c.quiet(); {
				if time.Now().After(deadline) {
					t.Fatalf("%s, %s: still quiet", network, name)
				}
			}
			client.Close()
			if c.quiet() {
				t.Errorf("%s: closed, but quiet", network)
			}
		}
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
	t.Parallel()
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
	s := apptest.Listen(t, apptest.Answer(apptest.Status(204, "Keep-Alive: timeout=0")))
	target := newTarget(t, s.URL)
	wantStatuses(t, target, 3, 204)
	wantSeen(t, s, 3, 3)
}
