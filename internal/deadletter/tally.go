package deadletter

import "sync"

// tally is the progress of an operation with one goroutine.
type tally struct {
	mu  sync.Mutex
	p   Progress
	end func()
}

func newTally(report Report) *tally {
	t := &tally{}
	t.end = reporting(report, t.progress)
	return t
}

func (t *tally) add(change func(*Progress)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.p)
}

func (t *tally) progress() Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.p
}

// stop reports for the last time.
func (t *tally) stop() Progress {
	t.end()
	return t.progress()
}
