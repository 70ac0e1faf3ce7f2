package httpguard

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"sidecar/internal/budget"
)

// listener keeps the connections of an HTTP server within bounds, before any request is complete: their number, and the
// memory of their headers. To make room it closes the oldest connection that is idle or whose request is not complete.
// One whose request is complete is left alone.
type listener struct {
	net.Listener

	most   int
	memory *budget.Account

	directly   bool       // new connections are served by serveDirect
	handedOver handedOver // by it, to net/http
	running    sync.WaitGroup

	mu       sync.Mutex
	conns    map[*conn]struct{}
	stopping bool
}

func newListener(l net.Listener, s *Server) *listener {
	return &listener{
		Listener: l, most: s.Conns, memory: s.Memory, directly: s.Direct != "", handedOver: newHandedOver(l),
		conns: map[*conn]struct{}{},
	}
}

// Accept waits for a connection for which there is room. If no other one may be closed, the new one is.
func (l *listener) Accept() (net.Conn, error) { return l.accept() }

func (l *listener) accept() (*conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: raw, l: l, since: time.Now(), direct: l.directly}
		l.mu.Lock()
		fits := !l.stopping && (len(l.conns) < l.most || l.evict(c, 0))
		if fits {
			l.conns[c] = struct{}{}
			if l.directly {
				l.running.Add(1)
			}
		}
		l.mu.Unlock()
		if fits {
			return c, nil
		}
		_ = raw.Close()
	}
}

// evict closes the oldest connection but c without a complete request that holds that many bytes. l.mu is locked.
func (l *listener) evict(c *conn, held int64) bool {
	var oldest *conn
	for other := range l.conns {
		if other == c || other.complete || other.busy || other.held < held {
			continue
		}
		if oldest == nil || other.since.Before(oldest.since) {
			oldest = other
		}
	}
	if oldest == nil {
		return false
	}
	oldest.forget()
	_ = oldest.Conn.Close()
	return true
}

// serveDirectly lets serve have each new connection, until the listener is closed.
func (l *listener) serveDirectly(serve func(*conn)) {
	for {
		c, err := l.accept()
		if err == nil {
			go func() {
				defer l.running.Done()
				serve(c)
			}()
			continue
		}
		l.mu.Lock()
		stopping := l.stopping
		l.mu.Unlock()
		if stopping || !l.handedOver.failed(err) || errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// mark records whether a part of a direct request has arrived, and whether one is being answered, until its answer is
// written. It returns true during a shutdown.
func (c *conn) mark(partial, busy bool) (stopping bool) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.partial, c.busy = partial, busy
	return c.l.stopping
}

// stop closes the listener and the direct connections without a request, and waits until ctx ends for the others.
func (l *listener) stop(ctx context.Context) error {
	l.mu.Lock()
	l.stopping = true
	l.mu.Unlock()
	_ = l.Close()
	l.closeDirect(func(c *conn) bool { return !c.partial && !c.busy })
	ended := make(chan struct{})
	go func() {
		l.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// closeDirect closes the direct connections of which closes returns true; their goroutines end.
func (l *listener) closeDirect(closes func(*conn) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if c.direct && closes(c) {
			_ = c.Conn.Close()
		}
	}
}

// handedOver is the listener of net/http: its connections were served directly until one needed net/http.
type handedOver struct {
	net.Listener

	conns  chan *conn
	errs   chan error
	closed chan struct{}
	end    func()
}

func newHandedOver(l net.Listener) handedOver {
	h := handedOver{Listener: l, conns: make(chan *conn), errs: make(chan error), closed: make(chan struct{})}
	h.end = sync.OnceFunc(func() { close(h.closed) })
	return h
}

// Accept waits for a connection that is handed over, or for an error of the listener.
func (h handedOver) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case err := <-h.errs:
		return nil, err
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and closes the listener, which a shutdown has closed before.
func (h handedOver) Close() error {
	h.end()
	if err := h.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// failed makes Accept return err. It returns false when net/http has ended.
func (h handedOver) failed(err error) bool {
	select {
	case h.errs <- err:
		return true
	case <-h.closed:
		return false
	}
}

// handOver gives a connection to net/http with the bytes that have been read.
func (l *listener) handOver(c *conn, read []byte) {
	l.mu.Lock()
	c.direct, c.partial, c.lines, c.prefix = false, false, lineScanner{}, read
	l.mu.Unlock()
	_ = c.SetDeadline(time.Time{})
	select {
	case l.handedOver.conns <- c:
	case <-l.handedOver.closed:
		_ = c.Close()
	}
}
