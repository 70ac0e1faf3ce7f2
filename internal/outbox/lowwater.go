package outbox

import "time"

// lowWater is the (send_after, id) at which claim queries start. It only skips dead index entries; correctness never
// depends on it.
//
// A sent row leaves an entry in the index of pending rows until VACUUM removes it. A claim that starts at the front of
// the index reads all of them, and one that starts where the last claim ended reads none. Rows below the mark, as those
// of long transactions or of a relay that died, are found by full scans, which start at the front. One is due when ten
// times its own duration has passed since the last one: full scans take a tenth of the time at most, and while they are
// cheap nearly every claim is one. A new session has no mark.
type lowWater struct {
	sendAfter, id string // "" and "": not set
	due           time.Time
	allKeysAt     time.Time // when a full scan last left no key out
}

const (
	fullShare = 10
	// Scans shorter than this need no pause.
	cheapScan = time.Millisecond
	// Every so often a full scan leaves no key out: the row that a key waits for may be below the mark.
	allKeysInterval = 5 * heldTime
)

// fullScanDue reports whether the next claim has to start at the front.
func (l *lowWater) fullScanDue(now time.Time) bool { return l.sendAfter == "" || !now.Before(l.due) }

// fullScanDone records a full scan.
func (l *lowWater) fullScanDone(began, ended time.Time) {
	l.due = ended.Add(fullShare * max(0, ended.Sub(began)-cheapScan))
}

// advance sets the mark to the first row that was left unchanged, or else to the last one. A full scan that found all
// rows does not lower it: those below are done. A row whose send_after has changed is due later than the mark.
func (l *lowWater) advance(b *batch) {
	for i := range b.rows {
		if x := &b.rows[i]; x.left() {
			l.sendAfter, l.id = x.due, x.id
			return
		}
	}
	if n := len(b.rows); n > 0 && (b.full || b.rows[n-1].above) {
		l.sendAfter, l.id = b.rows[n-1].due, b.rows[n-1].id
	}
}
