package broker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
// settled, and the broker delivers them again.
type Session struct {
	conn       *amqp.Connection
	wire       *amqpwire.Wire
	generation uint64
	consumers  atomic.Uint64 // started so far
	timeout    time.Duration
	options    *Options // of its dialer
	metrics    *metrics // of its dialer

	probe        sync.Once     // sends the dry run of admit
	answered     chan struct{} // closed when the broker has answered a dry run
	markAnswered func()
	trying       atomic.Int32 // calls of Stream.Try

	alarm     sync.Mutex
	blocked   bool
	changedAt time.Time     // when blocked changed last
	unchanged chan struct{} // closed when blocked changes

	closing atomic.Bool // by us
	once    sync.Once
	done    chan struct{}
	err     error // set before done is closed
}

func newSession(c *amqp.Connection, w *amqpwire.Wire, d *Dialer) *Session {
	s := &Session{
		conn: c, wire: w, generation: d.generation.Add(1), timeout: max(d.o.Timeout, d.o.Patience), options: &d.o,
		metrics: d.metrics, answered: make(chan struct{}), unchanged: make(chan struct{}), done: make(chan struct{}),
	}
	s.markAnswered = sync.OnceFunc(func() { close(s.answered) })
	w.OnAlarm(s.setBlocked)
	go s.watch(c.NotifyClose(make(chan *amqp.Error, 1))) // buffered: the library sends from its reading goroutine
	return s
}

// watch ends when the library has torn the connection down.
func (s *Session) watch(closes <-chan *amqp.Error) {
	for e := range closes {
		s.end(s.reason(e))
		// A call that is stuck in a write holds a lock the library's teardown needs; closing the socket frees both.
		s.cut()
	}
	s.gone()
}

func (s *Session) setBlocked(b bool) {
	s.alarm.Lock()
	defer s.alarm.Unlock()
	if s.blocked == b {
		return
	}
	s.blocked, s.changedAt = b, time.Now()
	close(s.unchanged)
	s.unchanged = make(chan struct{})
	if b {
		// A dry run of Stream.Try has no answer before the alarm is over, and must not outlive its message.
		time.AfterFunc(s.options.blockedPatience, func() {
			if s.trying.Load() > 0 && s.patience() <= 0 && s.Blocked() {
				s.fail(ErrBlocked)
			}
		})
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

// reason prefers what the broker said, then the error of the connection, of which the library keeps only the text.
func (s *Session) reason(e *amqp.Error) error {
	if cause := s.wire.Err(); cause != nil && !e.Server {
		return cause
	}
	return e
}

// gone ends the session when the library reports nothing: our own Close, or a connection that broke before we
// registered for the notification.
func (s *Session) gone() {
	if s.closing.Load() {
		s.end(nil)
		return
	}
	s.end(s.wire.Err())
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

// Err returns nil while the session is up, and why it ended afterwards; that is an ErrDisconnected.
func (s *Session) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Blocked reports whether the broker's resource alarm blocks this connection. The broker notifies a connection only
// when it has published during the alarm.
func (s *Session) Blocked() bool {
	b, _ := s.watchBlocked()
	return b
}

// FrameMax is the negotiated size of a frame in bytes; a header table must fit into one, less its overhead.
func (s *Session) FrameMax() int { return s.conn.Config.FrameSize }

// Major is the first number of the broker's version, 0 when it does not say.
func (s *Session) Major() int {
	version, _ := s.conn.Properties["version"].(string)
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		return 0
	}
	return n
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
	s.end(reason)
	s.cut()
}

// cut closes the socket, which ends every call. The library notices it when it reads, or by a failed write if its
// reader waits for a caller to take an answer that no call asked for.
func (s *Session) cut() {
	s.wire.Kill()
	go func() { _ = s.conn.UpdateSecret("", "") }() // writes a frame
}

// endWithin kills the session unless it ends within d.
func (s *Session) endWithin(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C:
		s.Kill()
	}
}

// Kill ends the session at once, without a word to the broker.
func (s *Session) Kill() { s.fail(errors.New("the session was killed")) }

// Close says goodbye to the broker and ends the session. It never hangs: an unanswered goodbye ends after two seconds.
func (s *Session) Close() {
	timer := time.AfterFunc(s.options.closeTimeout, s.cut)
	defer timer.Stop()
	s.closing.Store(true)
	_ = s.conn.Close()
	s.end(nil)
	s.wire.Kill()
}
