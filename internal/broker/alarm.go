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
	// run is answered before.
	alarmMemory = time.Minute
)

// Alarm is the broker's resource alarm, as far as the connections that share it have been notified. An alarm of one
// node is one of the whole cluster.
type Alarm struct {
	log *slog.Logger

	mu       sync.Mutex
	blocked  map[*Session]struct{}
	since    time.Time // zero: no alarm
	reason   string    // the broker's words, such as "low on memory"
	lost     time.Time // when the last blocked session ended
	answered time.Time // the last dry run
}

// NewAlarm returns an Alarm that logs its beginning and its end.
func NewAlarm(log *slog.Logger) *Alarm { return &Alarm{log: log, blocked: map[*Session]struct{}{}} }

// Since returns when the alarm began, and the broker's reason; the zero time without an alarm.
func (a *Alarm) Since() (since time.Time, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.active(), a.reason
}

// active returns since, which ends when no connection has been blocked for too long.
func (a *Alarm) active() time.Time {
	if len(a.blocked) == 0 && time.Since(a.lost) > alarmMemory {
		a.since = time.Time{}
	}
	return a.since
}

// begin records that the broker blocks s.
func (a *Alarm) begin(s *Session, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since := a.active()
	a.blocked[s], a.reason = struct{}{}, reason
	if since.IsZero() {
		a.since = time.Now()
		a.log.Warn("publishing blocked", "reason", reason, "connection", s.options.Name, "broker", s.server)
	}
	context.AfterFunc(s.ctx, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if _, during := a.blocked[s]; during {
			delete(a.blocked, s)
			a.lost = time.Now()
		}
	})
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
	return !a.active().IsZero() || time.Since(a.answered) > poll
}

// watchAlarm asks by dry runs whether an alarm blocks the connection: at its beginning, and when the Alarm that it
// shares is due. It must not be used on a connection that consumes.
func (s *Session) watchAlarm(ctx context.Context) error {
	poll := s.options.alarmPoll
	tick := time.NewTicker(min(poll, time.Second))
	defer tick.Stop()
	asked, notBefore := false, time.Time{}
	for {
		if !s.Blocked() && (!asked || s.options.Alarm.due(poll) && time.Now().After(notBefore)) {
			if errors.Is(s.askForAlarm(ctx), ErrRefused) {
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
func (s *Session) askForAlarm(ctx context.Context) error {
	question := &message.Publication{Exchange: s.options.Exchange}
	try := func() (struct{}, error) { return struct{}{}, s.dryRun(question, s.doWhileUp) }
	_, err := ask(ctx, s, try, func(struct{}) {})
	return err
}
