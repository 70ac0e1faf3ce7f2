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

var errSlowest = ending(fail(slow,
	"The body came too slowly, and other messages needed the memory that it held. Nothing was sent."))

// arrivals are the bodies and lines of which a part has arrived. When there is no memory for another one, the slowest
// are ended: connections that send a little and stop must not block the others.
type arrivals struct {
	slowAfter time.Duration // the constant

	mu  sync.Mutex
	all map[*arrival]struct{}
}

// arrival is the progress of one body, guarded by arrivals.mu.
type arrival struct {
	w     http.ResponseWriter // of its request
	mark  int                 // bytes when it was last fast enough
	since time.Time           // the time of mark
	held  int64               // bytes of memory
	ended bool
}

// progress records how many bytes of a body have arrived, with more to come.
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

// pause stops watching a body until its next progress. It returns errSlowest if the body has been ended.
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

// end ends slow bodies, the slowest first, until they hold n bytes together; the body of needy is not one of them. It
// returns false if there is none. Their memory is given back a little later, by their goroutines.
func (a *arrivals) end(needy *room, n int64) bool {
	before := time.Now().Add(-a.slowAfter)
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
		// A body that cannot be ended has its own deadline.
		_ = http.NewResponseController(x.w).SetReadDeadline(time.Unix(1, 0))
		if n -= x.held; n <= 0 {
			break
		}
	}
	return len(slow) > 0
}
