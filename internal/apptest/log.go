package apptest

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"sync"
)

// Log is a log that a test reads while goroutines write to it.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns all that was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Logger returns a logger that writes text lines here.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Lines returns the lines that contain all parts.
func (l *Log) Lines(parts ...string) []string {
	var found []string
	for line := range strings.Lines(l.String()) {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			found = append(found, line)
		}
	}
	return found
}

// Tally counts by name what goroutines have seen.
type Tally struct {
	mu sync.Mutex
	n  map[string]int
}

// Add counts one more and returns how many those are.
func (y *Tally) Add(name string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.n == nil {
		y.n = map[string]int{}
	}
	y.n[name]++
	return y.n[name]
}

// Of returns how many were counted under a name.
func (y *Tally) Of(name string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.n[name]
}

// Total returns how many were counted under all names.
func (y *Tally) Total() (sum int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, n := range y.n {
		sum += n
	}
	return sum
}

// corkListener accepts connections that can hold writes back, so that several TLS records leave in one segment.
type corkListener struct{ net.Listener }

func (l corkListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &corked{Conn: c}, nil
}

type corked struct {
	net.Conn
	mu   sync.Mutex
	held bool
	wait []byte
}

func (c *corked) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held {
		c.wait = append(c.wait, b...)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *corked) hold(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = on
	if !on && len(c.wait) > 0 {
		_, _ = c.Conn.Write(c.wait)
		c.wait = nil
	}
}

// Together sends each part in a TLS record of its own and all records in one segment. The connection must
// come from ListenTLS.
func (c *Conn) Together(parts ...string) {
	cork := c.Conn.(*tls.Conn).NetConn().(*corked)
	cork.hold(true)
	defer cork.hold(false)
	for _, p := range parts {
		c.Send(p)
	}
}
