package broker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"sidecar/internal/message"
)

const (
	// alarmPoll is how long a process may be without the answer to a dry run: the broker notifies only connections that
	// publish of an alarm.
	alarmPoll = 20 * time.Second
	// alarmMemory is how long an alarm counts as active after the last connection that it blocked has ended, unless a dry
	// run is answered or another connection is blocked before.
	alarmMemory = time.Minute
)

// Alarm is the broker's resource alarm, if a connection that shares it was notified. An alarm of one node is one of the
// whole cluster.
type Alarm struct {
	log    *slog.Logger
	memory time.Duration // alarmMemory, or what a test sets

	mu       sync.Mutex
	blocked  map[*Session]struct{}
	since    time.Time // zero: no alarm
	reason   string    // the broker's words, such as "low on memory"
	lost     time.Time // when the last blocked session ended
	answered time.Time // the last dry run
}

// NewAlarm returns an Alarm that logs its beginning and its end.
func NewAlarm(log *slog.Logger) *Alarm {
	return &Alarm{log: log, memory: alarmMemory, blocked: map[*Session]struct{}{}}
}

// Since returns when the alarm began, and the broker's reason; the zero time without an alarm.
func (a *Alarm) Since() (since time.Time, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.since, a.reason
}

// begin records that the broker blocks s.
func (a *Alarm) begin(s *Session, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.Err() != nil { // sessionEnded was called, or waits for the lock
		return
	}
	a.blocked[s], a.reason = struct{}{}, reason
	if a.since.IsZero() {
		a.since = time.Now()
		a.log.Warn("publishing blocked", "reason", reason, "connection", s.options.Name, "broker", s.server)
	}
}

// sessionEnded records the end of s. The alarm goes on if it blocked s: the next connection may be blocked, too.
func (a *Alarm) sessionEnded(s *Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, during := a.blocked[s]; during {
		delete(a.blocked, s)
		a.lost = time.Now()
		time.AfterFunc(a.memory, a.forget)
	}
}

// forget ends an alarm of which no connection was notified again.
func (a *Alarm) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.lost) >= a.memory {
		a.endUnlessBlocked()
	}
}

// end records that the broker has unblocked s.
func (a *Alarm) end(s *Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.blocked, s)
	a.endUnlessBlocked()
}

// answer records the answer to a dry run: after connections have been lost, it shows that the alarm is over.
func (a *Alarm) answer() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answered = time.Now()
	a.endUnlessBlocked()
}

func (a *Alarm) endUnlessBlocked() {
	if len(a.blocked) == 0 && !a.since.IsZero() {
		a.log.Info("publishing unblocked", "reason", a.reason,
			"duration_ms", float64(time.Since(a.since))/float64(time.Millisecond))
		a.since = time.Time{}
	}
}

// due reports whether a connection that is not blocked should ask: another one is blocked, or was when it ended, or
// the last answer is too old.
func (a *Alarm) due(poll time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.since.IsZero() || time.Since(a.answered) > poll
}

// watchAlarm asks by dry runs whether an alarm blocks the connection: at its beginning, and when the Alarm that it
// shares is due. It asks by the default exchange where the broker refuses a question by another one. It must not be
// used on a connection that consumes.
func (s *Session) watchAlarm(ctx context.Context) error {
	poll := s.options.alarmPoll
	tick := time.NewTicker(min(poll, time.Second))
	defer tick.Stop()
	asked, notBefore, exchange := false, time.Time{}, s.options.Exchange
	for {
		if !s.Blocked() && (!asked || s.options.Alarm.due(poll) && time.Now().After(notBefore)) {
			if errors.Is(s.askForAlarm(ctx, exchange), ErrRefused) {
				if exchange != "" { // it is missing, or the right to publish to it
					exchange = ""
					continue
				}
				notBefore = time.Now().Add(10 * poll) // the broker logs each refusal
			}
			asked = true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// askForAlarm returns ErrBlocked during an alarm. While the broker is silent it waits: heartbeats decide whether the
// connection is still good.
func (s *Session) askForAlarm(ctx context.Context, exchange string) error {
	question := &message.Publication{Exchange: exchange}
	try := func() (struct{}, error) { return struct{}{}, s.dryRun(question, s.doWhileUp) }
	_, err := ask(ctx, s, try, func(struct{}) {})
	return err
}
