package judge

import (
	"math"
	"time"

	"sidecar/test/chaos/ledger"
)

// duplicates is I6: every receipt beyond a success, and every copy beyond the first in the dead-letter queue, needs a fault
// that lost the word about the one before.
type duplicates struct {
	j    *judge
	by   map[*ledger.Fault]int
	rows map[*ledger.Fault]int // that a relay published again
	late map[*ledger.Fault]int // that began when the session had ended
}

func newDuplicates(j *judge) *duplicates {
	return &duplicates{j, map[*ledger.Fault]int{}, map[*ledger.Fault]int{}, map[*ledger.Fault]int{}}
}

// parking is how long a publish of the sidecar may wait for its confirm, after the answer.
const parking = int64(15 * time.Second)

// settling is how long after its answer a message is surely settled, and the settlement sent.
const settling = margin

func (d *duplicates) look(m *message) {
	done := -1
	for i := range m.receipts {
		r := &m.receipts[i]
		if done >= 0 {
			if f := d.explain(m, "received again after success", d.j.successes(m, i, done)); f != nil && cuts(f) && m.receipts[done].at > f.End {
				d.late[f]++
			}
		}
		if r.clean() {
			done = i
		}
	}
	d.failures(m)
	if n := len(m.parked) - 1; n > 0 {
		from, to := m.life()
		for range n {
			d.explain(m, "parked again", d.j.during(from, to+parking, "SPB"))
		}
	}
}

// failures looks for attempts that were made again without being counted: a failed one whose reject was lost.
func (d *duplicates) failures(m *message) {
	for i := 1; i < len(m.receipts); i++ {
		before, r := &m.receipts[i-1], &m.receipts[i]
		if before.status == 425 || before.clean() || r.count > before.count || before.count >= d.j.run.MaxRetries && len(m.redriven) > 0 {
			continue
		}
		answered := before.answered
		if answered == 0 {
			answered = before.at + int64(d.j.run.AppTimeout)
		}
		d.explain(m, "tried again uncounted", append(d.j.during(before.at, answered+settling, "SAPB"), d.j.doubled(m, i)...))
	}
}

// explain finds the fault behind one duplicate: the one that can cause the most beside what it is blamed for already.
func (d *duplicates) explain(m *message, what string, faults []*ledger.Fault) *ledger.Fault {
	if m.unsure {
		d.j.v.Duplicates["redrive"]++
		return nil
	}
	if d.again(m, len(faults) > 0) {
		return nil
	}
	if len(faults) == 0 {
		d.j.violated("I6", "message %d (%s): %s, and no fault explains it", m.pub.Seq, m.plan, what)
		return nil
	}
	blamed := faults[0]
	for _, f := range faults {
		if d.room(f) > d.room(blamed) {
			blamed = f
		}
	}
	d.by[blamed]++
	d.j.v.Duplicates[blamed.Class]++
	return blamed
}

// noticing is how many messages the workers may begin, beside those in their hands, until they notice that the session has
// ended.
const noticing = 4

// cuts reports whether a fault ends sessions at one moment.
func cuts(f *ledger.Fault) bool { return f.Kind == "cut" || f.Kind == "close-consumer" }

// bound checks that no fault is blamed for more than it can do.
func (d *duplicates) bound() {
	for f, n := range d.late {
		if most := 2*d.j.run.Concurrency + noticing; n > most {
			d.j.violated("I6", "fault %d (%s): %d messages of the dead session were sent to the app, at most %d could be", f.ID, f.Kind, n, most)
		}
	}
	for f, n := range d.rows {
		if most := d.j.mostAgain(f); n > most {
			d.j.violated("I6", "fault %d (%s) explains at most %d rows that were published again, there are %d", f.ID, f.Kind, most, n)
		}
	}
	for f, n := range d.by {
		if d.room(f) < 0 {
			d.j.violated("I6", "fault %d (%s) explains at most %d duplicates, there are %d", f.ID, f.Kind, d.room(f)+n, n)
		}
	}
}

// room is how many more duplicates a fault can explain.
func (d *duplicates) room(f *ledger.Fault) int {
	if f.Class == ClassBroker {
		return math.MaxInt
	}
	limit := d.j.run.Prefetch
	if f.Class == ClassApp {
		limit = d.j.run.Concurrency * (1 + int((f.End-f.Start)/int64(d.j.run.AppTimeout)))
	}
	// Some faults are several: a connection can break again while it is narrow or slow.
	return 2*limit - d.by[f]
}

// successes are the faults that explain receipt n although receipt done was answered with success: the ack was lost, the
// message is there twice, or the app was stopped and answered a request that nobody waited for any more.
func (b *books) successes(m *message, n, done int) []*ledger.Fault {
	r := &m.receipts[done]
	faults := append(b.during(r.at, r.answered+settling, ClassSidecar+ClassBroker), b.doubled(m, n)...)
	for _, f := range b.during(r.at, r.answered, ClassApp) {
		if f.Kind == AppStopped {
			faults = append(faults, f)
		}
	}
	return faults
}

// rollback is how much a killed broker may have forgotten.
const rollback = int64(10 * time.Second)

// doubled are the faults after which receipt n may be that of a second copy. Both copies live on. Either the message had
// just been settled when the broker forgot what it had not written down; or it was being published anew, because too many
// slept or because it had been moved by hand, when the confirm was lost.
func (b *books) doubled(m *message, n int) []*ledger.Fault {
	var faults []*ledger.Fault
	for k := range n {
		r := &m.receipts[k]
		answered := max(r.at, r.answered)
		faults = append(faults, b.during(r.at, answered+rollback, ClassBroker)...)
		if r.status == 425 || len(m.redriven) > 0 && !r.clean() {
			faults = append(faults, b.during(r.at, answered+parking, ClassSidecar+ClassPublish)...)
		}
	}
	return faults
}
