package outbox

import "time"

// lowWater is where a look for rows may begin. It is a hint and no cursor: nothing is sent, or not sent, because of it.
//
// A row that was sent leaves an entry in the index of pending rows until VACUUM comes, which it cannot while any
// transaction of the database is older. A look that begins at the front steps over all of them, half a second for half
// a million. A look that begins where the last one ended steps over none.
//
// Rows below the lowWater are found by full looks, which begin at the front: a row whose transaction was longer than
// others, whose send_after the app chose so, which a relay that died had, which was let go for another. A full look is
// due when ten times as long has passed since the last one as that took. So while full looks are cheap nearly every
// look is one, they take a tenth of the time at most, and a row below the lowWater waits for ten times what a full look
// takes, besides the poll interval and what is before it. A new session has no lowWater.
type lowWater struct {
	sendAfter, id string // "" and "": there is none
	due           time.Time
	fullHeldAt    time.Time // when the keys that are held were last left aside
}

const (
	fullShare = 10
	// cheapLook needs no pause.
	cheapLook = time.Millisecond
	// Every so often a full look leaves no key out: the row that a key waits for may be below the floor.
	unheldInterval = 5 * heldTime
)

// fullScanDue reports whether the next look is to begin at the front.
func (f *lowWater) fullScanDue(now time.Time) bool { return f.sendAfter == "" || !now.Before(f.due) }

// fullScanDone notes a full look.
func (f *lowWater) fullScanDone(began, ended time.Time) {
	f.due = ended.Add(fullShare * max(0, ended.Sub(began)-cheapLook))
}

// advance puts the floor to the first row that was left as it was, or else to the last one. A full look that found all
// there is does not lower it: what it found below is done. A row whose send_after has changed is due later than the
// floor.
func (f *lowWater) advance(rd *batch) {
	for i := range rd.rows {
		if x := &rd.rows[i]; x.left() {
			f.sendAfter, f.id = x.due, x.id
			return
		}
	}
	if n := len(rd.rows); n > 0 && (rd.full || rd.rows[n-1].above) {
		f.sendAfter, f.id = rd.rows[n-1].due, rd.rows[n-1].id
	}
}
