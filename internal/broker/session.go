package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
)

// closeTimeout bounds the farewell to the broker; after it the socket is closed. A stop of the process has to end
// within SIDECAR_SHUTDOWN_GRACE and three seconds.
const closeTimeout = 2 * time.Second

// Session is one connection with its channels. When it ends, it stays ended: deliveries received on it can no longer be
// settled, and the broker delivers them again. Its Err is an ErrDisconnected.
type Session struct {
	conn       *amqp.Connection
	wire       *amqpwire.Wire
	generation uint64
	server     string        // host:port
	consumers  atomic.Uint64 // started so far
	beginning  sync.Mutex    // one consumer begins at a time, so that the cause of an end is known, see ErrUnavailable
	timeout    time.Duration
	options    *Options // of its dialer
	metrics    *metrics // of its dialer

	probe        sync.Once     // sends the dry run of admit
	answered     chan struct{} // closed when the broker has answered a dry run
	markAnswered func()

	requesters requesters

	alarm     sync.Mutex
	blocked   bool
	changedAt time.Time     // when blocked changed last
	unchanged chan struct{} // closed when blocked changes

	closing atomic.Bool // by us
	lifetime
}

// lifetime is the time until something ends, once, with a reason that is not nil.
type lifetime struct {
	ctx context.Context
	end context.CancelCauseFunc
}

func newLifetime() (l lifetime) {
	l.ctx, l.end = context.WithCancelCause(context.Background())
	return l
}

// Done is closed at the end.
func (l *lifetime) Done() <-chan struct{} { return l.ctx.Done() }

// Err returns nil before the end, and the reason afterwards.
func (l *lifetime) Err() error {
	if l.ctx.Err() == nil { // without a lock
		return nil
	}
	return context.Cause(l.ctx)
}

func newSession(c *amqp.Connection, w *amqpwire.Wire, d *Dialer, server string) *Session {
	s := &Session{
		conn: c, wire: w, generation: d.generation.Add(1), server: server, timeout: max(d.o.Timeout, d.o.Patience),
		options: &d.o, metrics: d.metrics, answered: make(chan struct{}), unchanged: make(chan struct{}),
		requesters: newRequesters(), lifetime: newLifetime(),
	}
	s.markAnswered = sync.OnceFunc(func() { close(s.answered) })
	w.OnAlarm(s.setBlocked)
	go s.watch(c.NotifyClose(make(chan *amqp.Error, 1))) // buffered: the library sends from its reading goroutine
	return s
}

// watch ends the session when the library has ended the connection.
func (s *Session) watch(closes <-chan *amqp.Error) {
	e := <-closes // nil: our own Close, or a connection that broke before we registered for the notification
	reason := s.wire.Err()
	switch {
	case e == nil && s.closing.Load():
		reason = nil
	case e != nil && (e.Server || reason == nil): // of an error of the connection the library keeps only the text
		reason = e
	}
	s.over(reason)
	if e != nil {
		// A call that is stuck in a write holds a lock the library's teardown needs; closing the socket frees both.
		s.cut()
	}
}

func (s *Session) setBlocked(b bool, reason string) {
	s.alarm.Lock()
	defer s.alarm.Unlock()
	if s.blocked == b {
		return
	}
	s.blocked, s.changedAt = b, time.Now()
	close(s.unchanged)
	s.unchanged = make(chan struct{})
	if b {
		s.options.Alarm.begin(s, reason)
	} else {
		s.options.Alarm.end(s)
	}
}

// wasBlocked reports whether an alarm has blocked the connection at any time since then.
func (s *Session) wasBlocked(since time.Time) bool {
	s.alarm.Lock()
	defer s.alarm.Unlock()
	return s.blocked || s.changedAt.After(since)
}

// watchBlocked is Blocked with a channel that is closed when the answer changes.
func (s *Session) watchBlocked() (blocked bool, changed <-chan struct{}) {
	s.alarm.Lock()
	defer s.alarm.Unlock()
	return s.blocked, s.unchanged
}

// patience is how much longer a confirm is waited for while an alarm blocks the connection. It begins with the alarm,
// once for all messages under way: they are waited for one after the other.
func (s *Session) patience() time.Duration {
	s.alarm.Lock()
	defer s.alarm.Unlock()
	return s.options.blockedPatience - time.Since(s.changedAt)
}

// over ends the session; a reason of nil is our own Close.
func (s *Session) over(reason error) {
	if reason == nil {
		reason = errors.New("the session was closed")
	}
	s.end(fmt.Errorf("%w: %w", ErrDisconnected, reason))
	s.options.Alarm.sessionEnded(s)
}

// Generation numbers the sessions of a Dialer from 1, rising.
func (s *Session) Generation() uint64 { return s.generation }

// Blocked reports whether the broker's resource alarm blocks this connection. The broker notifies a connection only
// when it has published during the alarm.
func (s *Session) Blocked() bool {
	b, _ := s.watchBlocked()
	return b
}

// FrameMax is the negotiated size of a frame in bytes; a header table must fit into one, less its overhead.
func (s *Session) FrameMax() int { return s.conn.Config.FrameSize }

// Version is what the broker says that its version is, such as 4.3.1; "" when it does not say.
func (s *Session) Version() string {
	version, _ := s.conn.Properties["version"].(string)
	return version
}

// numbers is the beginning of the broker's version, 0 for what it does not say.
func (s *Session) numbers() (major, minor int) {
	_, _ = fmt.Sscanf(s.Version(), "%d.%d", &major, &minor)
	return major, minor
}

// Major is the first number of the broker's version.
func (s *Session) Major() int {
	major, _ := s.numbers()
	return major
}

// AtLeast reports whether the broker says that its version is this one or a newer one.
func (s *Session) AtLeast(major, minor int) bool {
	is, then := s.numbers()
	return is > major || is == major && then >= minor
}

// Channel opens a channel.
func (s *Session) Channel(ctx context.Context) (*amqp.Channel, error) {
	var ch *amqp.Channel
	err := s.Do(ctx, "open a channel", func() (err error) {
		ch, err = s.conn.Channel()
		return err
	})
	return ch, err
}

func (s *Session) fail(reason error) {
	s.over(reason)
	s.cut()
}

// cut closes the socket, which ends every call. The library notices it when it reads, or by a failed write if its
// reader waits for a caller to take an answer that no call asked for.
func (s *Session) cut() {
	s.wire.Kill()
	go func() { _ = s.conn.UpdateSecret("", "") }() // writes a frame
}

// Kill ends the session at once, without a word to the broker.
func (s *Session) Kill() { s.fail(errors.New("the session was killed")) }

// Close says goodbye to the broker and ends the session. It never hangs: an unanswered goodbye ends after two seconds.
func (s *Session) Close() {
	timer := time.AfterFunc(s.options.closeTimeout, s.cut)
	defer timer.Stop()
	s.closing.Store(true)
	_ = s.conn.Close()
	s.over(nil)
	s.wire.Kill()
}
