package apptest

import (
	"crypto/tls"
	"net"
	"sync"
)

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
