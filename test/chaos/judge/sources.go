package judge

import (
	"cmp"
	"math"
	"slices"
	"time"

	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
)

// Figures are the report's about one source.
type Figures struct {
	Source      string        `json:"source"`
	Messages    int           `json:"messages"`
	Confirmed   int           `json:"confirmed"`             // or committed
	Unknown     int           `json:"unknown"`               // of a row: until the table was checked
	Refused     int           `json:"refused,omitempty"`     // with 4xx
	Nacked      int           `json:"nacked,omitempty"`      // the broker did not want them
	RolledBack  int           `json:"rolled_back,omitempty"` // rows
	Quarantined int           `json:"quarantined,omitempty"` // rows that no broker could take
	Overtaken   int           `json:"overtaken,omitempty"`   // rows committed after one with a higher id
	DelayP50    time.Duration `json:"delay_p50_ns"`          // from POST or commit to first receipt
	DelayP99    time.Duration `json:"delay_p99_ns"`
}

func (j *judge) figuresOf(s plan.Source) Figures {
	f := Figures{Source: s.String()}
	var delays []time.Duration
	for i := range j.messages {
		m := &j.messages[i]
		if m.source != s || m.pub == nil {
			continue
		}
		f.Messages++
		result := m.pub.Result
		if m.written != nil {
			result = m.written.Result
		}
		switch result {
		case ledger.Confirmed:
			f.Confirmed++
		case ledger.Refused:
			f.Refused++
		case ledger.Nacked:
			f.Nacked++
		case ledger.RolledBack:
			f.RolledBack++
		case ledger.Unknown:
			f.Unknown++
			switch {
			case s == plan.Outbox && m.stored != nil:
				f.Confirmed++
			case s == plan.Outbox && j.looked:
				f.RolledBack++
			}
		}
		if m.stored != nil && m.stored.Quarantined {
			f.Quarantined++
		}
		if len(m.Receipts) > 0 {
			from := m.pub.Sent
			if s == plan.Outbox {
				from = m.pub.Done // the row is invisible before
			}
			delays = append(delays, time.Duration(max(0, m.Receipts[0].At-from)))
		}
	}
	f.Overtaken = len(j.overtaken())
	if s != plan.Outbox {
		f.Overtaken = 0
	}
	slices.SortFunc(delays, cmp.Compare)
	f.DelayP50, f.DelayP99 = quantile(delays, 0.5), quantile(delays, 0.99)
	return f
}

// requested reads what was POSTed.
func (b *books) requested(dir string) error {
	return ledger.Each(dir, ledger.RequestFile, func(r *ledger.Requested) error {
		m := b.of(r.Seq, r.ID)
		if m == nil {
			return nil
		}
		m.request = r
		return m.publish(&r.Published)
	})
}

// written reads the rows, and their outcomes. The table settles a commit that had no answer.
func (b *books) written(dir string) error {
	err := ledger.Each(dir, ledger.TableFile, func(s *ledger.Stored) error {
		b.looked = true
		if m := b.of(plan.SeqOf(s.ID), s.ID); m != nil {
			m.stored = s
		}
		return nil
	})
	if err != nil {
		return err
	}
	return ledger.Each(dir, ledger.RowFile, func(w *ledger.Written) error {
		m := b.of(w.Seq, w.ID)
		if m == nil {
			return nil
		}
		pub := w.Published
		if pub.Result == ledger.Unknown && b.looked {
			pub.Result = ledger.RolledBack
			if m.stored != nil {
				pub.Result = ledger.Confirmed
			}
		}
		if pub.Result == ledger.Confirmed && w.Poison {
			pub.Result = ledger.Refused // by the broker: it is not to be found there
		}
		m.written = w
		return m.publish(&pub)
	})
}

// seen reports whether the message was in the broker.
func (m *message) seen() bool { return len(m.Receipts)+len(m.Parked)+m.Queued > 0 }

// endpoint is I12.
func (j *judge) endpoint() {
	j.by["I12"].Idle = true
	for i := range j.messages {
		m := &j.messages[i]
		r := m.request
		if r == nil {
			continue
		}
		j.by["I12"].Idle = false
		switch seen := m.seen(); {
		case seen && r.Result == ledger.Refused:
			j.violated("I12", "message %d was refused with %d %s, and is in the broker", r.Seq, r.Status, r.Code)
		case seen && r.Want != 0:
			j.violated("I12", "message %d was to be refused with %d, and is in the broker", r.Seq, r.Want)
		case r.Want != 0 && r.Result == ledger.Confirmed:
			j.violated("I12", "message %d was to be refused with %d, and was answered with %d", r.Seq, r.Want, r.Status)
		case r.Want != 0 && r.Result == ledger.Refused && r.Status != r.Want:
			j.violated("I12", "message %d was to be refused with %d, and was with %d %s", r.Seq, r.Want, r.Status, r.Code)
		case r.Want == 0 && r.Result == ledger.Refused:
			j.violated("I12", "message %d has nothing wrong and was refused with %d %s", r.Seq, r.Status, r.Code)
		case r.Result == ledger.Unknown && len(j.cuttingOff(r.Sent, r.Done)) == 0:
			j.violated("I12", "message %d was answered with %d %s, and no fault explains that it is unknown", r.Seq, r.Status,
				r.Code)
		case !seen && r.Result == ledger.Confirmed:
			j.violated("I12", "message %d was answered with %d, and was never in the broker", r.Seq, r.Status)
		}
	}
}

// cuttingOff are the faults of a time after which a client of the publish endpoint may know nothing of a message.
func (b *books) cuttingOff(from, to int64) []*ledger.Fault {
	all := b.during(from, to, ClassSidecar+ClassPublish+ClassBroker)
	for _, f := range b.during(from, to, ClassNone) {
		if f.Kind == SidecarEnded {
			all = append(all, f)
		}
	}
	return all
}

// outbox is I13.
func (j *judge) outbox() {
	j.by["I13"].Idle = true
	for i := range j.messages {
		m := &j.messages[i]
		switch {
		case m.written != nil:
			j.by["I13"].Idle = false
			j.row(m)
		case m.stored != nil:
			j.violated("I13", "row %d is in the table, and was never inserted", m.stored.Row)
		}
	}
	if !j.by["I13"].Idle && !j.looked {
		j.violated("I13", "the table was not checked in the end")
	}
	j.keys()
}

func (j *judge) row(m *message) {
	w, s, seen := m.written, m.stored, m.seen()
	wrong := func(what string) { j.violated("I13", "row %d (message %d, %s): %s", w.Row, w.Seq, w.Shape, what) }
	switch {
	case m.pub.Result == ledger.RolledBack:
		if seen {
			wrong("rolled back, and was sent")
		}
		if s != nil {
			wrong("rolled back, and is in the table")
		}
	case m.pub.Result == ledger.Unknown: // not checked
	case s == nil:
		wrong("committed, and is gone from the table")
	case w.Poison:
		if seen || s.SentAt != 0 {
			wrong("no broker can take it, and it was sent or is marked so")
		}
		if !s.Quarantined || s.Error == "" {
			wrong("no broker can take it, and it is not quarantined with the reason")
		}
	case s.Quarantined || s.Attempts > 0:
		wrong("nothing is wrong with it, and the relay says: " + s.Error)
	case s.SentAt == 0 && seen:
		wrong("sent, and not marked so")
	case s.SentAt == 0:
		wrong("committed, and was never sent")
	case !seen:
		wrong("marked as sent, and was never in the broker")
	}
}

// committed are the rows that were, in the order of their ids in the table.
func (j *judge) committed() []*message {
	var all []*message
	for i := range j.messages {
		if m := &j.messages[i]; m.written != nil && m.stored != nil {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b *message) int { return cmp.Compare(a.stored.Row, b.stored.Row) })
	return all
}

// keys is the part of I13 about ordering keys: rows of one key, each committed before the next was written, are sent in
// their order.
//
// Rows that one statement marks have times of their own, in an order that is not promised.
func (j *judge) keys() {
	const together = int64(20 * time.Millisecond)

	last := map[string]*message{}
	for _, m := range j.committed() {
		if m.written.Key == "" || m.stored.SentAt == 0 {
			continue
		}
		if before := last[m.written.Key]; before != nil && before.stored.SentAt > m.stored.SentAt+together {
			j.violated("I13", "row %d was sent before row %d of the same ordering key", m.stored.Row, before.stored.Row)
		}
		last[m.written.Key] = m
	}
}

// overtaken are the rows that were committed when one with a higher id already was.
func (j *judge) overtaken() []*message {
	var rows []*message
	all := j.committed()
	first := int64(math.MaxInt64)
	for _, m := range slices.Backward(all) {
		if first < m.pub.Done {
			rows = append(rows, m)
		}
		first = min(first, m.pub.Done)
	}
	return rows
}

// relayed are the faults in which a relay can have published a row and not have marked it: after its commit, and before
// it was marked.
func (b *books) relayed(m *message) []*ledger.Fault {
	if m.written == nil {
		return nil
	}
	to := int64(math.MaxInt64)
	if m.stored != nil && m.stored.SentAt != 0 {
		to = m.stored.SentAt
	}
	return b.during(m.pub.Sent, to, ClassSidecar+ClassPublish+ClassBroker+ClassData)
}

// mostAgain is how many rows the relays may publish again because of a fault: what each had claimed, and once more
// because some faults are several.
func (b *books) mostAgain(f *ledger.Fault) int {
	if f.Class == ClassBroker {
		return math.MaxInt
	}
	return 2 * b.run.Batch * b.run.Relays
}

// again explains a duplicate by a row that was published again, unless all that relays can have done is explained
// already and there are other faults to blame.
func (d *duplicates) again(m *message, others bool) bool {
	faults := d.j.relayed(m)
	if len(faults) == 0 {
		return false
	}
	room := func(f *ledger.Fault) int { return d.j.mostAgain(f) - d.rows[f] }
	blamed := slices.MaxFunc(faults, func(a, b *ledger.Fault) int { return cmp.Compare(room(a), room(b)) })
	if room(blamed) <= 0 && others {
		return false
	}
	d.rows[blamed]++
	d.j.v.Duplicates["outbox "+blamed.Class]++
	return true
}
