package judge

import (
	"math"
	"slices"
	"time"

	kit "sidecar/internal/testkit/judge"
	"sidecar/test/chaos/ledger"
)

// duplicates is I6: every receipt beyond a success, and every copy beyond the first in the dead-letter queue, needs a
// fault that lost the word about the one before.
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
	from, to := m.life()
	d.j.common.Duplicates(&m.Message, func(done, n int) {
		f := d.explain(m, "received again after success", d.j.successes(m, n, done))
		if f != nil && cuts(f) && m.Receipts[done].At > f.End {
			d.late[f]++
		}
	}, func() { d.explain(m, "parked again", d.j.during(from, to+parking, "SPB")) })
	d.failures(m)
}

// failures searches for attempts that were made again without being counted: a failed one whose reject was lost.
func (d *duplicates) failures(m *message) {
	for i := 1; i < len(m.Receipts); i++ {
		before, r := &m.Receipts[i-1], &m.Receipts[i]
		if before.Kind != kit.Failed || r.Count > before.Count || before.Count >= d.j.run.MaxRetries && len(m.redriven) > 0 {
			continue
		}
		if d.j.forgets(before.At, r.At) {
			d.j.v.GivenBack.add(m, before.Count+1-r.Count)
			continue
		}
		answered := before.Done
		if answered == 0 {
			answered = before.At + int64(d.j.run.AppTimeout)
		}
		d.explain(m, "tried again uncounted",
			append(d.j.unknown(before.At, r.At, d.j.during(before.At, answered+settling, "SAPB")), d.j.doubled(m, i)...))
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
		d.j.violated("I6", "%s: %s, and no fault explains it", m.Name, what)
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

// noticing is how many messages the workers may begin, beside those in their hands, until they notice that the session
// has ended.
const noticing = 4

// cuts reports whether a fault ends sessions at one moment.
func cuts(f *ledger.Fault) bool { return f.Kind == "cut" || f.Kind == "close-consumer" }

// bound checks that no fault is blamed for more than it can do.
func (d *duplicates) bound() {
	for f, n := range d.late {
		if most := (2*d.j.run.Concurrency + noticing) * d.j.gathered(); n > most {
			d.j.violated("I6", "fault %d (%s): %d messages of the dead session were sent to the app, at most %d could be", f.ID,
				f.Kind, n, most)
		}
	}
	for f, n := range d.rows {
		if most := d.j.mostAgain(f); n > most {
			d.j.violated("I6", "fault %d (%s) explains at most %d rows that were published again, there are %d", f.ID, f.Kind,
				most, n)
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
		limit = d.j.underWay() * (1 + int((f.End-f.Start)/int64(d.j.run.AppTimeout)))
	}
	// Some faults are several: a connection can break again while it is narrow or slow.
	return 2*limit - d.by[f]
}

// successes are the faults that explain receipt n although receipt done was answered with success: the ack was lost,
// the message is there twice, or the app was stopped and answered a request after its client had gone.
func (b *books) successes(m *message, n, done int) []*ledger.Fault {
	r := &m.Receipts[done]
	faults := b.unknown(r.At, m.Receipts[n].At, b.during(r.At, r.Done+settling, ClassSidecar+ClassBroker))
	faults = append(faults, b.doubled(m, n)...)
	for _, f := range b.during(r.At, r.Done, ClassApp) {
		if f.Kind == AppStopped {
			faults = append(faults, f)
		}
	}
	return faults
}

// unknown leaves those of the faults after which a sidecar may not know an outcome of a time. The process remembers it
// over a connection that is lost; its end loses it, and a second replica never had it.
func (b *books) unknown(from, to int64, faults []*ledger.Fault) []*ledger.Fault {
	if b.run.Replicas > 1 || b.ended(from, to) {
		return faults
	}
	return slices.DeleteFunc(faults, cuts)
}

// rollback is how much a killed broker may have forgotten.
const rollback = int64(10 * time.Second)

// doubled are the faults after which receipt n may be that of a second copy. Both copies live on. Either the message
// had just been settled when the broker forgot what it had not written down; or it was being published anew, because
// too many slept or because it had been moved by hand, when the confirm was lost.
func (b *books) doubled(m *message, n int) []*ledger.Fault {
	var faults []*ledger.Fault
	for k := range n {
		r := &m.Receipts[k]
		answered := max(r.At, r.Done)
		faults = append(faults, b.during(r.At, answered+rollback, ClassBroker)...)
		if r.Status == 425 || len(m.redriven) > 0 && r.Kind != kit.Accepted {
			faults = append(faults, b.during(r.At, answered+parking, ClassSidecar+ClassPublish)...)
		}
	}
	return faults
}
