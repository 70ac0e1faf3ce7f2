package flow

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sidecar/internal/message"
)

// Constants of rejects.
const (
	rejectsThreshold = 10              // different messages in a row that are refused
	rejectsQuiet     = 5 * time.Minute // without a 2xx: while messages are accepted, path and token are right
	rejectsPauseMax  = 30 * time.Second
	rejectsHashed    = 4 << 10 // of a body, in bytes

	// rejectsEarly is how long after the app was there for the first time a 400 or a 422 may mean that it refuses
	// everything (a host check, another contract). Later it means a bad message, and so it does after a 2xx.
	rejectsEarly = time.Minute
)

// Statuses that may mean that the app refuses everything: rejectsStatuses are the answers to a wrong path, host, token,
// method, media type or protocol, and each 3xx that of a wrong URL, which a service before the app may write. 404 and
// 410 may also be about one message: see rejectsQuiet.
var (
	rejectsStatuses      = []int{401, 403, 404, 405, 406, 407, 410, 411, 415, 421, 426, 501}
	rejectsEarlyStatuses = []int{400, 422}
)

const redirect = 3 // stands for all 3xx: an app may answer several of them

// rejects notices an app that refuses every message on one of its paths, with one of those statuses or with several.
// Then it pauses, tries a message after the pause, and pauses again for twice as long and tries twice as many, one at a
// time, until a message on that path gets any other answer. For the answer of a healthy app it needs two atomic loads.
type rejects struct {
	trial // its epoch is rejectsQuiet before the start, so that accepted is old enough while it is 0

	mu        sync.Mutex // of report and restart; a timer of the gate must not take it
	began     int64      // nanoseconds from epoch to the app's first answer to a probe; until then to the start
	seenUp    bool
	paths     []path // by message.Outcome.Route
	rejecting int    // paths that reject
}

type path struct {
	accepted atomic.Int64 // nanoseconds from epoch to the last 2xx, within a second; 0 while there is none
	status   atomic.Int32 // the last of a run of refusals, or redirect; 0 while there is none

	refused, redirected run  // redirected is of the answers since the last that was no 3xx
	mixed               bool // the run of refusals has more than one status
	rejects             bool // from the first pause until another answer
	early               bool // the first pause was one in which 400 and 422 are refusals; they are until it ends
}

// run has the hashes of the different messages that got such an answer in a row, at most rejectsThreshold.
type run []uint64

func newRejects(c *Control) *rejects {
	return &rejects{
		trial: trial{
			c: c, reason: AppRejectsAll, risk: 1, few: 1, fresh: 1, repeats: 1,
			maxPause: rejectsPauseMax, maxPauseParking: rejectsPauseMax, epoch: time.Now().Add(-rejectsQuiet),
		},
		began: int64(rejectsQuiet), paths: make([]path, 1+c.o.Routes),
	}
}

// limit ends after rejectsPauseMax without a message on a path that rejects: then the other paths are not held back.
func (r *rejects) limit() int32 {
	if len(r.paths) > 1 && int64(time.Since(r.epoch))-r.opened.Load() > int64(rejectsPauseMax) {
		return math.MaxInt32
	}
	return r.trial.limit()
}

// report takes an answer of the app. It returns true from the first pause because of such answers until a message gets
// another, also on trial. An attempt without an answer changes nothing: the breaker counts it.
func (r *rejects) report(m *message.Message, o *message.Outcome) (rejecting bool) {
	if o.Failure != message.FailureNone {
		return false
	}
	at, p := int64(o.At.Sub(r.epoch)), &r.paths[o.Route]
	if o.OK() && at-p.accepted.Load() > int64(time.Second) { // seldom written: all workers share it
		p.accepted.Store(at)
	}
	status := refusal(o, r.c.o.ParkOn)
	if status == 0 && p.status.Load() == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	isEarly := p.accepted.Load() == 0 && at-r.began <= int64(rejectsEarly)
	status = p.note(status, isEarly)
	url := cmp.Or(o.URL, r.c.o.URL)
	if status == 0 && p.rejects {
		if p.rejects, r.rejecting = false, r.rejecting-1; r.rejecting == 0 {
			r.end()
		}
		r.c.o.Logger.Info("resumed", "reason", string(AppRejectsAll), "url", url, "status", o.Status)
	}
	if !p.rejects && p.enough(m, status, at) {
		p.rejects, p.early, r.rejecting = true, isEarly, r.rejecting+1
		log := r.c.o.Logger.With("reason", string(AppRejectsAll), "url", url, "status", o.Status)
		if o.Location != "" {
			log = log.With("location", o.Location)
		}
		log.Warn("paused", "fix", "correct the path in SIDECAR_APP_URL or SIDECAR_ROUTES, or SIDECAR_APP_TOKEN")
	}
	if p.rejects {
		r.refused(p, m, o, url)
	}
	return p.rejects
}

// note continues or ends the runs of p with the refusal of an answer, and returns it; 0 if a 400 or a 422 is none now.
func (p *path) note(status int32, isEarly bool) int32 {
	if slices.Contains(rejectsEarlyStatuses, int(status)) && !isEarly && (!p.rejects || !p.early) {
		status = 0
	}
	last := p.status.Swap(status)
	p.mixed = status != 0 && last != 0 && (p.mixed || status != last)
	if status != redirect {
		p.redirected = p.redirected[:0]
	}
	if status == 0 {
		p.refused = p.refused[:0]
	}
	return status
}

// refused takes an answer that refuses m on p, which rejects.
func (r *rejects) refused(p *path, m *message.Message, o *message.Outcome, url string) {
	detail := fmt.Sprintf("%s answers every message with status %d", url, o.Status)
	if p.mixed {
		detail = fmt.Sprintf("%s refuses every message, the last with status %d", url, o.Status)
	}
	if o.Location != "" {
		detail += " and Location " + o.Location
	}
	switch r.state.Load() {
	case closed:
		r.pause(closed, detail)
	case onTrial:
		r.detail.Store(&detail)
		if len(r.paths) > 1 && m.RetryCount > 0 { // where there are routes, no message is deferred
			r.pause(onTrial, detail)
		}
		r.failed(m, o.Status)
	}
}

// refusal returns the status of an answer that may mean that the app refuses everything, redirect for a 3xx, and 0 for
// any other answer. An app that steers with a disposition has understood the message, and a status of parkOn is about
// one message.
func refusal(o *message.Outcome, parkOn []int) int32 {
	switch {
	case o.Disposition != message.DispositionNone || slices.Contains(parkOn, o.Status):
		return 0
	case o.Status/100 == redirect:
		return redirect
	case slices.Contains(rejectsStatuses, o.Status) || slices.Contains(rejectsEarlyStatuses, o.Status):
		return int32(o.Status) // #nosec G115 -- at most 999
	}
	return 0
}

// AnswerToAll says, for people, what follows if the app answers every message so; "" if consumption goes on.
func AnswerToAll(o *message.Outcome, parkOn []int) string {
	status := int(refusal(o, parkOn))
	switch {
	case status == 0:
		return ""
	case slices.Contains(rejectsEarlyStatuses, status):
		return fmt.Sprintf("as the answer to the first %d messages of the first minute after the app was there for the "+
			"first time: consumption pauses (%s)", rejectsThreshold, AppRejectsAll)
	}
	run := fmt.Sprintf("as the answer to %d messages in a row", rejectsThreshold)
	if status != redirect {
		run += fmt.Sprintf(", without a 2xx for %v", rejectsQuiet)
	}
	return fmt.Sprintf("%s: consumption pauses (%s)", run, AppRejectsAll)
}

// defers is trial.defers, unless there are routes: a message may have another path than the one that rejects.
func (r *rejects) defers(m *message.Message) bool { return len(r.paths) == 1 && r.trial.defers(m) }

var seed = maphash.MakeSeed()

// identify returns a hash that distinguishes m from other messages; its cost does not grow with the message.
func identify(m *message.Message) uint64 {
	return maphash.Comparable(seed, [...]string{m.MessageID, m.CorrelationID, m.Type, m.RoutingKey}) +
		maphash.Bytes(seed, m.Body[:min(len(m.Body), rejectsHashed)]) + uint64(len(m.Body))
}

// enough takes a refusal of m and reports whether consumption has to pause: rejectsThreshold different messages in a
// row were refused, and none was accepted for rejectsQuiet. No redirect is about one message, so redirects need no
// quiet.
func (p *path) enough(m *message.Message, status int32, at int64) bool {
	if status == 0 {
		return false
	}
	isRedirected := status == redirect && p.redirected.add(m)
	return p.refused.add(m) && (isRedirected || at-p.accepted.Load() >= int64(rejectsQuiet))
}

// add adds m and reports whether the run is long enough. A first attempt is another message than all before; a retried
// message counts if it is not in the run.
func (r *run) add(m *message.Message) bool {
	if len(*r) == rejectsThreshold { // all workers queue here until rejectsQuiet has passed
		return true
	}
	id := identify(m)
	if m.RetryCount == 0 || !slices.Contains(*r, id) {
		*r = append(*r, id)
	}
	return len(*r) == rejectsThreshold
}

// restart begins anew after the app was away: it may have been repaired. During a pause one message is tried at once.
func (r *rejects) restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.paths {
		r.paths[i].accepted.Store(0)
		r.paths[i].refused, r.paths[i].redirected = nil, nil
	}
	if !r.seenUp {
		r.seenUp, r.began = true, int64(time.Since(r.epoch))
	}
	if r.end() { // the pause is over, and the next one is the shortest
		r.begin()
		r.state.Store(onTrial)
	}
}
