package judge

import (
	"cmp"
	"slices"
	"time"
)

// Fault is a time in which an acknowledgement may have been lost, so that its message is delivered again. Times are
// Unix nanoseconds.
type Fault struct {
	Start, End int64
	Undoes     time.Duration // how long before Start an ack may be undone: what a killed broker had not yet written
}

const (
	ackWithin   = time.Second     // how long an ack may be on its way to the broker
	faultEffect = 2 * time.Second // how long after a fault its effects may show
)

// loses reports whether the ack of a message that ended at a time may be lost, so that it is delivered again later.
func (f *Fault) loses(ended, again int64) bool {
	return f.Start <= ended+int64(ackWithin+f.Undoes) && f.End+int64(faultEffect) >= ended && f.Start <= again
}

// explained reports whether one of the faults can have made a message that ended at a time be delivered again.
func explained(faults []Fault, ended, again int64) bool {
	return slices.ContainsFunc(faults, func(f Fault) bool { return f.loses(ended, again) })
}

// attempt is one receipt of the message at an index of the key's messages.
type attempt struct {
	of      int
	receipt *Receipt
}

// keyed is the state of one key while its attempts are read in the order of their arrival.
type keyed struct {
	*Judge
	sent   []*Message
	faults []Fault
	last   attempt // receipt nil: there is none yet
	under  attempt // of all attempts so far the one that was under way longest
}

// ByKey is I16, for all messages of one key of one queue in the order in which they were published. Each is attempted,
// alone, until it has ended; then comes the next one. After a fault the key may go back to the first message whose ack
// may not have arrived, and runs in order from there, without the messages that a replica remembers the app has taken.
// Messages that were never received are left out: a loss is reported by Kept.
func (j *Judge) ByKey(sent []*Message, faults []Fault) {
	k := keyed{Judge: j, sent: sent, faults: faults}
	var all []attempt
	for of, m := range sent {
		for i := range m.Receipts {
			all = append(all, attempt{of, &m.Receipts[i]})
		}
	}
	slices.SortStableFunc(all, func(a, b attempt) int { return cmp.Compare(a.receipt.At, b.receipt.At) })
	for _, a := range all {
		k.alone(a)
		switch {
		case k.last.receipt == nil || a.of > k.last.of:
			k.forward(a)
		case a.of < k.last.of || k.last.receipt.Kind.Ends():
			k.back(a)
		}
		k.last = a
		if k.under.receipt == nil || a.receipt.Begun > k.under.receipt.Begun {
			k.under = a
		}
	}
}

// alone checks that no other message of the key is under way. After a fault the app may still have a request whose
// sidecar or connection has gone.
func (k *keyed) alone(a attempt) {
	r := k.under.receipt
	if r == nil || a.receipt.At >= r.Begun || explained(k.faults, r.Begun, a.receipt.At) || k.during(r.At, a.receipt.At) {
		return
	}
	k.Violated("I16", "%s was attempted while %s was under way", k.sent[a.of].Name, k.sent[k.under.of].Name)
}

// during reports whether a fault had effects in a time.
func (k *keyed) during(from, to int64) bool {
	return slices.ContainsFunc(k.faults, func(f Fault) bool { return f.Start <= to && f.End+int64(faultEffect) >= from })
}

// forward checks an attempt of a message behind the last one: that one has ended, and no message in between is missing.
func (k *keyed) forward(a attempt) {
	first := 0
	if r := k.last.receipt; r != nil {
		first = k.last.of + 1
		if m := k.sent[k.last.of]; !m.accepted(a.receipt.At) && len(m.Parked) == 0 && !m.Taken {
			k.Violated("I16", "%s overtook %s, which had got %d", k.sent[a.of].Name, m.Name, r.Status)
		}
	}
	for _, m := range k.sent[first:a.of] {
		switch {
		case len(m.Receipts) == 0 || len(m.Parked) > 0:
		case m.Receipts[0].At > a.receipt.At:
			k.Violated("I16", "%s came before %s", k.sent[a.of].Name, m.Name)
		case m.accepted(a.receipt.At):
		default:
			k.Violated("I16", "the key went back, but %s was left out before %s", m.Name, k.sent[a.of].Name)
		}
	}
}

// accepted reports whether an attempt before a time ended the message, or may have.
func (m *Message) accepted(before int64) bool {
	return slices.ContainsFunc(m.Receipts, func(r Receipt) bool { return r.At < before && (r.MayEnd || r.Kind.Ends()) })
}

// back checks an attempt of a message that had its turn before: a fault has to explain it.
func (k *keyed) back(a attempt) {
	m, ended := k.sent[a.of], int64(0)
	for i := range m.Receipts {
		if r := &m.Receipts[i]; r.At < a.receipt.At {
			ended = max(r.At, r.Done)
		}
	}
	if ended > 0 && !explained(k.faults, ended, a.receipt.At) {
		k.Violated("I16", "the key went back from %s to %s, which had ended %s earlier", k.sent[k.last.of].Name, m.Name,
			time.Duration(a.receipt.At-ended))
	}
}
