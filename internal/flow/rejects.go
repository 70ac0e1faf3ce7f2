package flow

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sethvargo/go-retry"

	"sidecar/internal/message"
)

// Constants of rejects.
const (
	rejectsThreshold = 10              // different messages in a row that get the same status
	rejectsQuiet     = 5 * time.Minute // without a 2xx: while messages are accepted, path and token are right
	rejectsPauseMax  = 30 * time.Second
)

// rejectsStatuses are the answers to a wrong path, token, method or media type.
var rejectsStatuses = []int{401, 403, 404, 405, 415, 501}

// rejects notices an app that refuses every message with the same one of those statuses. Then it shuts the gate, opens
// it for one message after each pause, and shuts it again for twice as long until a message gets any other answer. It
// judges one path of the app. For the answer of a healthy app it needs two atomic loads.
type rejects struct {
	c        *Control
	epoch    time.Time    // rejectsQuiet before the start
	accepted atomic.Int64 // nanoseconds from epoch to the last 2xx, within a second; 0 while there is none
	status   atomic.Int32 // of the run of equal answers; 0 while there is none
	state    atomic.Int32 // closed, pausing or onTrial

	mu     sync.Mutex   // of report and restart; a timer of the gate must not take it
	hash   maphash.Hash // of id and body of a message
	run    []uint64     // the different messages of the run, at most rejectsThreshold
	pauses retry.Backoff
}

// report takes an answer of the app. It returns true while the gate is shut or on trial because of such answers. An
// attempt without an answer changes nothing: the breaker counts it.
func (r *rejects) report(m *message.Message, o *message.Outcome) (shut bool) {
	if o.Failure != message.FailureNone {
		return false
	}
	at := int64(o.At.Sub(r.epoch))
	if o.OK() && at-r.accepted.Load() > int64(time.Second) { // seldom written: all workers share it
		r.accepted.Store(at)
	}
	status := int32(0) // any other answer; an app that steers with a disposition has understood the message
	if o.Disposition == message.DispositionNone && slices.Contains(rejectsStatuses, o.Status) &&
		!slices.Contains(r.c.o.ParkOn, o.Status) {
		status = int32(o.Status) // #nosec G115 -- at most 999
	}
	if status == 0 && r.status.Load() == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status.Swap(status) != status {
		r.reopen(o.Status)
	}
	switch state := r.state.Load(); {
	case state == onTrial:
		r.shut()
	case state == closed && status != 0 && r.enough(m) && at-r.accepted.Load() >= int64(rejectsQuiet):
		r.pauses = pausesUpTo(rejectsPauseMax)
		r.shut()
		r.c.o.Logger.Warn("paused", "reason", string(AppRejectsAll), "url", r.c.o.URL, "status", status)
	}
	return r.state.Load() != closed
}

// enough adds m to the run and reports whether the run is long enough. A first attempt is another message than all
// before; a retried message counts if it is not in the run.
func (r *rejects) enough(m *message.Message) bool {
	r.hash.Reset()
	_, _ = r.hash.WriteString(m.MessageID)
	_, _ = r.hash.Write(m.Body)
	id := r.hash.Sum64()
	if len(r.run) < rejectsThreshold && (m.RetryCount == 0 || !slices.Contains(r.run, id)) {
		r.run = append(r.run, id)
	}
	return len(r.run) == rejectsThreshold
}

// shut holds the gate for the next pause, after which one message at a time may be in flight.
func (r *rejects) shut() {
	pause, _ := r.pauses.Next()
	r.state.Store(pausing)
	detail := fmt.Sprintf("%s answers every message with status %d", r.c.o.URL, r.status.Load())
	r.c.HoldFor(AppRejectsAll, pause, detail, func() {
		if r.state.CompareAndSwap(pausing, onTrial) {
			r.c.ramp.hold(1)
		}
	})
}

// reopen ends the run, and the pause if there is one: a message got another status.
func (r *rejects) reopen(status int) {
	r.run = r.run[:0]
	if r.state.Swap(closed) != closed {
		r.c.Lift(AppRejectsAll)
		r.c.ramp.resume()
		r.c.o.Logger.Info("resumed", "reason", string(AppRejectsAll), "status", status)
	}
}

// restart begins anew after the app was away: it may have been repaired. During a pause one message is tried at once.
func (r *rejects) restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.accepted.Store(0)
	r.run, r.pauses = r.run[:0], pausesUpTo(rejectsPauseMax)
	if r.state.Load() != closed {
		r.state.Store(onTrial)
		r.c.Lift(AppRejectsAll)
		r.c.ramp.hold(1)
	}
}
