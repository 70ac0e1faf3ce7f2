package judge

import (
	"fmt"
	"time"

	"sidecar/test/chaos/ledger"
)

// duplicates is I6: every receipt beyond a success, and every copy beyond the first in the dead-letter queue, needs a fault
// that lost the word about the one before.
type duplicates struct {
	j  *judge
	by map[*ledger.Fault]int
}

func newDuplicates(j *judge) *duplicates { return &duplicates{j, map[*ledger.Fault]int{}} }

// parking is how long one publish to the dead-letter queue may wait for its confirm, after the last answer.
const parking = int64(15 * time.Second)

// settling is how long after its answer a message is surely settled, and the settlement sent.
const settling = margin

func (d *duplicates) look(m *message) {
	done := -1
	for i := range m.receipts {
		r := &m.receipts[i]
		if done >= 0 {
			d.explain(m, "received again after success", m.receipts[done].at, m.receipts[done].answered+settling, ClassSidecar+ClassBroker)
		}
		if r.clean() {
			done = i
		}
	}
	d.failures(m)
	if n := len(m.parked) - 1; n > 0 {
		from, to := m.life()
		for range n {
			d.explain(m, "parked again", from, to+parking, "SPB")
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
		d.explain(m, "tried again uncounted", before.at, answered+settling, "SAPB")
	}
}

// explain finds the fault behind one duplicate: the one that can cause the most is blamed.
func (d *duplicates) explain(m *message, what string, from, to int64, classes string) {
	if m.unsure {
		d.j.v.Duplicates["redrive"]++
		return
	}
	faults := d.j.during(from, to, classes)
	if len(faults) == 0 {
		d.j.violated("I6", "message %d (%s): %s, and no fault explains it", m.pub.Seq, m.plan, what)
		return
	}
	blamed := faults[0]
	for _, f := range faults {
		if f.Class == ClassBroker {
			blamed = f
		}
	}
	d.by[blamed]++
	d.j.v.Duplicates[blamed.Class]++
}

// bound checks that no fault is blamed for more than it can do.
func (d *duplicates) bound() {
	for f, n := range d.by {
		limit := d.j.run.Prefetch
		if f.Class == ClassApp {
			limit = d.j.run.Concurrency * (1 + int((f.End-f.Start)/int64(d.j.run.AppTimeout)))
		}
		// Some faults are several: a connection can break again while it is narrow or slow.
		if f.Class != ClassBroker && n > 2*limit {
			d.j.violated("I6", "%s explains at most %d duplicates, there are %d", fmt.Sprintf("fault %d (%s)", f.ID, f.Kind), 2*limit, n)
		}
	}
}
