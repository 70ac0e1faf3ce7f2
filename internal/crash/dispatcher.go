package crash

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"sidecar/internal/message"
)

// What the outcome of an attempt says that ended in a crash of the sidecar; it becomes x-final-error.
var (
	ErrEnded  = errors.New("crash: the sidecar ended while it had this message")
	ErrFailed = errors.New("crash: the sidecar failed over this message") // its log says how
)

// Next POSTs one message and reports what the app answered.
type Next interface {
	Dispatch(ctx context.Context, m *message.Message) message.Outcome
}

// Around makes g count the crashes during the attempts of next, and returns g. appGone reports, after a broken
// connection, that the app does not accept connections any more.
func (g *Guard) Around(next Next, appGone func(ctx context.Context) bool) *Guard {
	g.next, g.appGone = next, appGone
	return g
}

// Dispatch makes the attempt with the message written down in the journal, and sets m.Crashes. A message that ended an
// earlier process is not POSTed before its crash is counted: the outcome is a crash, whose settlement publishes the
// message with the new count. When the settlement cannot, the next delivery is POSTed and the journal keeps the count.
func (g *Guard) Dispatch(ctx context.Context, m *message.Message) (o message.Outcome) {
	s := <-g.slots
	defer func() { g.slots <- s }()
	s.identify(m)
	if s.suspect != nil && !s.suspect.unwritable {
		o = failed(message.FailureCrash, ErrEnded)
		o.CrashProven, o.Suspect = s.proven, s.suspect
		return o
	}
	if err := s.begin(ctx, m); err != nil {
		o = failed(message.FailureInterrupted, err)
		if errors.Is(err, errLost) {
			o.Failure = message.FailureUndispatched
		}
		o.Suspect = s.unsettled()
		return o
	}
	defer func() {
		if p := recover(); p != nil {
			g.o.Logger.Error("panic", "message_id", m.MessageID,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			m.Crashes++
			s.now.crashes++
			s.proven = true
			o = failed(message.FailurePanic, ErrFailed)
			o.CrashProven = true
		}
		s.end()
		o.Suspect = s.unsettled()
	}()
	o = g.next.Dispatch(ctx, m)
	if o.Failure == message.FailureReset && g.gone(ctx) {
		m.Crashes++
		s.proven = g.exclusive.solitary(s.turn)
		o.CrashProven = s.proven
	}
	return o
}

func failed(f message.Failure, err error) message.Outcome {
	return message.Outcome{Failure: f, Err: err, RetryAfter: -1, At: time.Now()}
}

// probePauses are the pauses before the probes of an app that broke a connection: a process that dies closes its
// sockets one after the other.
var probePauses = []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond}

func (g *Guard) gone(ctx context.Context) bool {
	for _, pause := range probePauses {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
		if g.appGone(ctx) {
			return true
		}
	}
	return false
}

// slot is the place in the journal for one attempt at a time, and what is known of its message.
type slot struct {
	g      *Guard
	number int
	hasher hasher
	buf    [unit]byte

	now     entry    // the journal's entry for the message, written or not
	turn    uint64   // of the attempt
	weight  int64    // of the attempt: 1, or maxSlots for one beside which there must be no other
	proven  bool     // the last crash was caused by this message: it was alone
	suspect *suspect // the journal's further entry for the message; nil without one
}

// identify finds a message that was delivered just now, and sets m.Crashes: those in its headers and those that only
// the journal counts. Only a message that the broker has delivered before, or that has a count, can be a suspect.
func (s *slot) identify(m *message.Message) {
	s.now = entry{state: inHand, id: s.hasher.identify(m)}
	s.suspect, s.proven = nil, false
	m.Crashes = message.Crashes(m.Headers)
	if !m.Redelivered && m.Crashes == 0 {
		return
	}
	if s.suspect = s.g.takeSuspect(s.now.id); s.suspect != nil {
		s.now.crashes, s.proven = s.suspect.crashes, s.suspect.alone
		m.Crashes += int(s.suspect.crashes)
	}
}

// begin waits for the message's turn and writes it down. After an error nothing was begun.
func (s *slot) begin(ctx context.Context, m *message.Message) (err error) {
	if s.weight = 1; m.Crashes > 0 {
		s.weight = maxSlots
	}
	if s.turn, err = s.g.exclusive.enter(ctx, m.Lost, s.weight); err != nil {
		return err
	}
	s.now.at = now()
	s.g.report(s.g.journal.write(s.number, &s.now, &s.buf))
	if s.suspect != nil { // the slot says it now
		s.g.forget(s.suspect)
		s.suspect = nil
	}
	return nil
}

// end ends the message's turn: the outcome is known. What only the journal counts stays in it until the message is
// settled.
func (s *slot) end() {
	if s.now.crashes > 0 {
		s.now.alone, s.now.at = s.proven, now()
		s.suspect = s.g.add(s.now)
	}
	s.g.report(s.g.journal.clear(s.number))
	s.g.exclusive.leave(s.weight)
}

// unsettled is the suspect for the settlement of its message: nil without one, and not an interface with a nil pointer.
func (s *slot) unsettled() message.Suspect {
	if s.suspect == nil {
		return nil
	}
	return s.suspect
}
