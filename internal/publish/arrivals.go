package publish

import (
	"net/http"
	"slices"
	"sync"
	"time"
)

// A body is slow when less than slowBytes of it have arrived for slowAfter.
const (
	slowAfter = time.Second
	slowBytes = 64 << 10
)

var errSlowest = &failure{code: slow, status: http.StatusRequestTimeout,
	detail: "The body came too slowly, and other messages needed the memory that it held. Nothing was sent."}

// arrivals are the bodies and lines of which a part has arrived. When there is no memory for another one, the slowest are
// ended: connections that send a little and stop must not keep everybody else out.
type arrivals struct {
	mu  sync.Mutex
	all map[*arrival]struct{}
}

// arrival is how far a body has arrived. arrivals.mu guards it.
type arrival struct {
	w     http.ResponseWriter // of its request
	mark  int                 // bytes when it was last seen to be fast enough
	since time.Time           // the time of that
	held  int64               // bytes of memory
	ended bool
}

// progress notes that so many bytes of a body have arrived, and that more are to come.
func (a *arrivals) progress(r *room, bytes int) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.arriving == nil {
		r.arriving = &arrival{w: r.w, mark: bytes, since: now}
	}
	x := r.arriving
	if _, watched := a.all[x]; !watched || bytes-x.mark >= slowBytes {
		x.mark, x.since = bytes, now
	}
	x.held = r.taken
	a.all[x] = struct{}{}
}

// pause leaves a body alone until its next progress. It returns errSlowest when that body has been ended before.
func (a *arrivals) pause(r *room) *failure {
	if r.arriving == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all, r.arriving)
	if r.arriving.ended {
		return errSlowest
	}
	return nil
}

// end ends as many slow bodies as hold n bytes together, the slowest first, but not that of the room that needs them. It
// returns false when there is none. They return their memory as soon as their goroutines have noticed.
func (a *arrivals) end(needy *room, n int64) bool {
	before := time.Now().Add(-slowAfter)
	a.mu.Lock()
	defer a.mu.Unlock()
	var slow []*arrival
	for x := range a.all {
		if x != needy.arriving && x.since.Before(before) {
			slow = append(slow, x)
		}
	}
	slices.SortFunc(slow, func(x, y *arrival) int { return x.since.Compare(y.since) })
	for _, x := range slow {
		x.ended = true
		delete(a.all, x)
		_ = http.NewResponseController(x.w).SetReadDeadline(time.Unix(1, 0)) // a body that cannot be ended has its own deadline
		if n -= x.held; n <= 0 {
			break
		}
	}
	return len(slow) > 0
}
