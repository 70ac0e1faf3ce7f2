package judge

import (
	"slices"
	"time"
)

// Unnoticed is I17, for the messages of one subscription. faults are those that concern it, its own and those of the
// whole process: whatever else happens meanwhile is trouble of another subscription. Without a fault of its own no
// message is delivered again after it ended, none is parked unless it always fails, and the first attempt is made
// within a time, unless late returns true for the message.
func (j *Judge) Unnoticed(messages []*Message, faults []Fault, within time.Duration, late func(*Message) bool) {
	for _, m := range messages {
		ended := int64(0)
		for i := range m.Receipts {
			r := &m.Receipts[i]
			if ended > 0 && !explained(faults, ended, r.At) {
				j.Violated("I17", "%s was delivered again %s after it had ended", m.Name, time.Duration(r.At-ended))
			}
			if r.Kind.Ends() {
				ended = max(r.At, r.Done)
			}
		}
		from, to := m.Since, m.last()
		own := slices.ContainsFunc(faults, func(f Fault) bool { return f.Start <= to && f.End+int64(faultEffect) >= from })
		if len(m.Parked) > 0 && !m.Fails && !own {
			j.Violated("I17", "%s was parked", m.Name)
		}
		if m.Since == 0 || len(m.Receipts) == 0 || own || late != nil && late(m) {
			continue
		}
		if waited := time.Duration(m.Receipts[0].At - m.Since); waited > within {
			j.Violated("I17", "%s waited for %s", m.Name, waited)
		}
	}
}

// last is the time of the last that is recorded of the message.
func (m *Message) last() int64 {
	at := m.Since
	for i := range m.Receipts {
		at = max(at, m.Receipts[i].At, m.Receipts[i].Done)
	}
	return at
}
