package sim

import (
	"fmt"
	"sync"
	"time"

	"sidecar/internal/sim/model"
	"sidecar/internal/testkit/judge"
)

// ledger holds the records of every part but the sidecar. Only they are judged.
type ledger struct {
	mu       sync.Mutex
	began    time.Time
	sent     map[string]time.Time // the broker has them
	order    []string             // in which they were sent
	receipts map[string][]*receipt
	strange  []string // what was seen to be wrong at once, with its invariant
	parked   []model.Message
	struck   []*fault // the faults that happened
	idle     bool     // the queues were empty in the end
	dropped  []model.Dropped
	books    []books // one per sidecar
}

// receipt is one attempt as the app saw it.
type receipt struct {
	at       time.Time
	done     time.Time // zero = never answered
	retries  int       // what the sidecar said it was
	step     step
	answered bool
	killed   bool // the app went away with the answer
	stale    bool // the broker had taken the message back when it was POSTed
}

// books are a sidecar's own metrics when it had drained.
type books struct {
	received, stale int
	settled         map[string]int // by outcome
}

func newLedger() *ledger {
	return &ledger{began: time.Now(), sent: map[string]time.Time{}, receipts: map[string][]*receipt{}}
}

func (l *ledger) publish(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[id] = time.Now()
	l.order = append(l.order, id)
}

func (l *ledger) receive(id string, retries int, stale bool) *receipt {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &receipt{at: time.Now(), retries: retries, stale: stale}
	l.receipts[id] = append(l.receipts[id], r)
	return r
}

// attempts counts the answers so far: an attempt that was cut short is tried again.
func (l *ledger) attempts(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.receipts[id] {
		if r.answered && !r.killed {
			n++
		}
	}
	return n
}

func (l *ledger) answer(r *receipt, s step, killed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.done, r.step, r.answered, r.killed = time.Now(), s, s.kind() != judge.Nothing, killed
}

func (l *ledger) odd(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.strange = append(l.strange, fmt.Sprintf(format, args...))
}

func (l *ledger) park(m []model.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parked = append(l.parked, m...)
}

// strike notes that a fault has happened, and how long it may show.
func (l *ledger) strike(f *fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.at = time.Now()
	l.struck = append(l.struck, f)
}
