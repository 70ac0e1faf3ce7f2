package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// closeTimeout bounds the farewell to the broker; after it the socket is closed.
const closeTimeout = 3 * time.Second

// Session is one connection with its channels. When it ends, it stays ended: deliveries received on it can no longer be
// settled, and the broker gives them to somebody else.
type Session struct {
	conn       *amqp.Connection
	wire       *wire
	generation uint64
	timeout    time.Duration

	blocked atomic.Bool

	once sync.Once
	done chan struct{}
	err  error // set before done is closed
}

func newSession(c *amqp.Connection, w *wire, d *Dialer) *Session {
	s := &Session{
		conn: c, wire: w, generation: d.generation.Add(1), timeout: d.o.Timeout, done: make(chan struct{}),
	}
	// Buffered: the library delivers these from its reading goroutine.
	closes := c.NotifyClose(make(chan *amqp.Error, 1))
	blocks := c.NotifyBlocked(make(chan amqp.Blocking, 16))
	go s.watch(closes, blocks)
	return s
}

// watch ends when the library has torn the connection down.
func (s *Session) watch(closes <-chan *amqp.Error, blocks <-chan amqp.Blocking) {
	for {
		select {
		case b, ok := <-blocks:
			if !ok {
				blocks = nil
				continue
			}
			s.blocked.Store(b.Active)
		case e, ok := <-closes:
			if !ok {
				s.end(nil)
				return
			}
			s.end(s.reason(e))
			// A call that is stuck in a write holds a lock the library's teardown needs; closing the socket frees both.
			kill(s.wire.raw)
		}
	}
}

// reason prefers what the broker said, then the error of the connection, of which the library keeps only the text.
func (s *Session) reason(e *amqp.Error) error {
	if cause := s.wire.cause(); cause != nil && !e.Server {
		return cause
	}
	return e
}

// end records why the session ended, the first time; nil is our own Close.
func (s *Session) end(reason error) {
	s.once.Do(func() {
		if reason == nil {
			s.err = fmt.Errorf("%w: the session was closed", ErrDisconnected)
		} else {
			s.err = fmt.Errorf("%w: %w", ErrDisconnected, reason)
		}
		close(s.done)
	})
}

// Generation numbers the sessions of a Dialer from 1, rising.
func (s *Session) Generation() uint64 { return s.generation }

// Done is closed when the session has ended, for whatever reason.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err is nil while the session stands and says why it ended afterwards; it is an ErrDisconnected.
func (s *Session) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Blocked reports whether the broker's resource alarm blocks this connection. A broker tells a connection only once it
// has published.
func (s *Session) Blocked() bool { return s.blocked.Load() }

// FrameMax is the negotiated size of a frame in bytes; a header table must fit into one, less its overhead.
func (s *Session) FrameMax() int { return s.conn.Config.FrameSize }

// Channel opens a channel.
func (s *Session) Channel(ctx context.Context) (*amqp.Channel, error) {
	var ch *amqp.Channel
	err := s.Do(ctx, "open a channel", func() (err error) {
		ch, err = s.conn.Channel()
		return err
	})
	return ch, err
}

// Do runs a blocking call of the client library, which knows no deadline. When fn has not returned after the call
// timeout, or at the deadline of ctx if that is earlier, the session is killed, which makes fn return. The mere
// cancellation of ctx does not interrupt a call: it would cost the session, and with it every unsettled delivery.
// name says what fn does, for the error.
func (s *Session) Do(ctx context.Context, name string, fn func() error) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	limit := s.timeout
	if at, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(at))
	}
	timer := time.AfterFunc(limit, func() { s.fail(&callTimeout{name}) })
	defer timer.Stop()
	if err := fn(); err != nil {
		return fmt.Errorf("%s: %w", name, s.explain(err))
	}
	return nil
}

// explain replaces the library's "channel/connection is not open" by the reason, when the session is what ended.
func (s *Session) explain(err error) error {
	var closed *amqp.Error
	if !errors.As(err, &closed) {
		return err
	}
	if closed.Server && closed.Recover {
		return &RefusedError{Code: closed.Code, Text: closed.Reason}
	}
	if s.conn.IsClosed() {
		<-s.done // the library marks itself closed a moment before it tells watch
		return s.err
	}
	return err
}

// callTimeout is the reason of a session that was killed because a call had no answer.
type callTimeout struct{ call string }

func (e *callTimeout) Error() string { return e.call + ": no answer in time" }

// Timeout makes it a timeout for every reader of net.Error.
func (e *callTimeout) Timeout() bool { return true }

// Temporary completes net.Error.
func (e *callTimeout) Temporary() bool { return false }

func (s *Session) fail(reason error) {
	s.end(reason)
	kill(s.wire.raw)
}

// Kill ends the session at once, without a word to the broker.
func (s *Session) Kill() { s.fail(errors.New("the session was killed")) }

// Close says goodbye to the broker and ends the session. It never hangs: an unanswered goodbye ends after three seconds.
func (s *Session) Close() {
	timer := time.AfterFunc(closeTimeout, func() { kill(s.wire.raw) })
	defer timer.Stop()
	_ = s.conn.Close()
	s.end(nil)
	kill(s.wire.raw)
}
