package http1

import (
	"io"
	"net"
	"testing"
	"time"

	"sidecar/internal/apptest"
)

func TestReapLeavesTheFreshOnes(t *testing.T) {
	t.Parallel()
	p := &pool{limit: 10, ttl: time.Hour}
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

func TestQuiet(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "unix"} {
		for name, disturb := range map[string]func(net.Conn){
			"a byte": func(c net.Conn) { _, _ = c.Write([]byte{0}) },
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
