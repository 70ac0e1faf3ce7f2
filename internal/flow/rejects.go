package flow

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sidecar/internal/message"
)

// Constants of rejects.
const (
	rejectsThreshold = 10              // different messages in a row that get the same status
	rejectsQuiet     = 5 * time.Minute // without a 2xx: while messages are accepted, path and token are right
	rejectsPauseMax  = 30 * time.Second
	rejectsHashed    = 4 << 10 // of the body of a message without an id, in bytes
)

// rejectsStatuses are the answers to a wrong path, token, method or media type.
var rejectsStatuses = []int{401, 403, 404, 405, 415, 501}

// rejects notices an app that refuses every message with the same one of those statuses. Then it pauses, risks one
// message after each pause, and pauses again for twice as long until a message gets any other answer. It judges one
// path of the app. For the answer of a healthy app it needs two atomic loads.
type rejects struct {
	trial
	epoch    time.Time    // rejectsQuiet before the start, so that accepted is old enough while it is 0
	accepted atomic.Int64 // nanoseconds from epoch to the last 2xx, within a second; 0 while there is none
	status   atomic.Int32 // of the run of equal answers; 0 while there is none

	mu   sync.Mutex // of report and restart; a timer of the gate must not take it
	seed maphash.Seed
	run  []uint64 // hashes of the different messages of the run, at most rejectsThreshold
}

func newRejects(c *Control) *rejects {
	return &rejects{
		trial: trial{c: c, reason: AppRejectsAll, risk: 1, most: rejectsPauseMax},
		epoch: time.Now().Add(-rejectsQuiet), seed: maphash.MakeSeed(),
	}
}

// report takes an answer of the app. It returns true from the first pause because of such answers until a message gets
// another, also while one message is risked. An attempt without an answer changes nothing: the breaker counts it.
func (r *rejects) report(m *message.Message, o *message.Outcome) (rejecting bool) {
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
		r.run = r.run[:0]
		if r.end() {
			r.c.o.Logger.Info("resumed", "reason", string(AppRejectsAll), "status", o.Status)
		}
	}
	state := r.state.Load()
	begins := state == closed && status != 0 && r.enough(m) && at-r.accepted.Load() >= int64(rejectsQuiet)
	if begins {
		r.c.o.Logger.Warn("paused", "reason", string(AppRejectsAll), "url", r.c.o.URL, "status", status)
	}
	if begins || state == onTrial {
		r.pause(state, fmt.Sprintf("%s answers every message with status %d", r.c.o.URL, status))
	}
	return begins || state != closed
}

// enough adds m to the run and reports whether the run is long enough. A first attempt is another message than all
// before; a retried message counts if it is not in the run.
func (r *rejects) enough(m *message.Message) bool {
	if len(r.run) == rejectsThreshold { // all workers queue here until rejectsQuiet has passed
		return true
	}
	id := maphash.String(r.seed, m.MessageID)
	if m.MessageID == "" {
		id = maphash.Bytes(r.seed, m.Body[:min(len(m.Body), rejectsHashed)])
	}
	if m.RetryCount == 0 || !slices.Contains(r.run, id) {
		r.run = append(r.run, id)
	}
	return len(r.run) == rejectsThreshold
}

// restart begins anew after the app was away: it may have been repaired. During a pause one message is tried at once.
func (r *rejects) restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.accepted.Store(0)
	r.run = r.run[:0]
	if r.end() { // the pause is over, and the next one is the shortest
		r.state.Store(onTrial)
	}
}
