package sim

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"sidecar/internal/message"
	"sidecar/internal/sim/model"
)

// judgement collects what is wrong. Every line begins with the invariant.
//
//	I1   no loss: what was sent is accepted, parked or discarded by the app's word
//	I2   no false ack: nothing is gone after an answer that did not accept it
//	I3   no invention: every message is as it was sent
//	I4   a parked message says why, rightly
//	I5   exact counts where no fault may explain others
//	I6   what is delivered or parked twice has a fault to explain it, and only so much
//	I7   parked is only what always fails, or failed because the app went away
//	I8   with one message at a time and no trouble, first in, first out
//	I9   everything comes to rest after the faults have healed
//	I11  the sidecar's metrics say the same
type judgement struct {
	*ledger
	s      *settings
	lines  []string
	parked map[string][]model.Message
	exact  bool // nothing happened that could explain a duplicate
	twice  int  // messages that were accepted once more
	totals map[kind]int
}

func (l *ledger) judge(s *settings) *judgement {
	j := &judgement{ledger: l, s: s, parked: map[string][]model.Message{}, totals: map[kind]int{}}
	j.exact = !slices.ContainsFunc(l.struck, (*fault).explains)
	for _, m := range l.parked {
		j.parked[m.MessageID] = append(j.parked[m.MessageID], m)
	}
	j.lines = append(j.lines, l.strange...)
	if !l.idle {
		j.say("I9 not at rest after %v", liveness)
	}
	for _, d := range l.dropped {
		j.say("I1 %s was thrown away by the broker: %s from %s", d.MessageID, d.Why, d.Queue)
	}
	for _, p := range s.messages {
		j.message(p)
	}
	j.bounds()
	j.order()
	j.metrics()
	return j
}

func (j *judgement) say(format string, args ...any) {
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// message judges one message.
func (j *judgement) message(p *parcel) {
	if _, sent := j.sent[p.id]; !sent {
		j.say("I9 %s was never sent", p.id)
		return
	}
	receipts := j.receipts[p.id]
	ends := map[kind]int{}
	for _, r := range receipts {
		if r.answered {
			ends[r.step.kind()]++
			j.totals[r.step.kind()]++
		}
	}
	parked := j.parked[p.id]
	if ends[accepted]+ends[discarded]+len(parked) == 0 && j.idle {
		if len(receipts) == 0 {
			j.say("I1 %s is lost", p.id)
		} else {
			j.say("I2 %s is gone without having been accepted: %s", p.id, j.story(p.id))
		}
	}
	for _, r := range receipts {
		if r.stale && !slices.ContainsFunc(j.struck, func(f *fault) bool { return f.hides(r.at) }) {
			j.say("I6 %s was POSTed after %v, when the broker had taken it back: %s", p.id, r.at.Sub(j.began), j.story(p.id))
		}
	}
	for _, m := range parked {
		j.park(p, m, receipts)
	}
	if j.exact {
		j.counts(p, receipts)
	} else {
		j.duplicates(p, receipts)
	}
}

// counts judges a message that nothing may explain a duplicate of.
func (j *judgement) counts(p *parcel, receipts []*receipt) {
	want := p.fate(j.s.plan.MaxRetries)
	n, killed := 0, 0
	for _, r := range receipts {
		switch {
		case r.killed:
			killed++
		case r.answered:
			n++
		}
	}
	end := len(j.parked[p.id])
	switch {
	case killed > 0: // each was a failed attempt that the parcel does not know of
		if n > want.attempts || end > 1 {
			j.say("I5 %s: %d attempts beside %d with a dying app, want at most %d; parked %d times: %s", p.id, n, killed, want.attempts, end, j.story(p.id))
		}
	case n != want.attempts:
		j.say("I5 %s: %d attempts, want %d: %s", p.id, n, want.attempts, j.story(p.id))
	case (want.end == failed || want.end == unwanted) != (end == 1) || end > 1:
		j.say("I5 %s: parked %d times, of a message that has to end as %d", p.id, end, want.end)
	}
}

// duplicates judges a message of a run with faults.
func (j *judgement) duplicates(p *parcel, receipts []*receipt) {
	if len(receipts) == 0 {
		return
	}
	from := receipts[0].at
	want, n := p.fate(j.s.plan.MaxRetries), 0
	var gone time.Time // when the message had left for good
	for _, r := range receipts {
		if !gone.IsZero() && r.at.After(gone) {
			j.explained(p.id, "delivered after it had been accepted", from, r.at)
		}
		if r.answered && !r.killed {
			if n++; n > want.attempts {
				j.explained(p.id, "more attempts than its plan", from, r.at)
			}
		}
		switch left := r.answered && (r.step.kind() == accepted || r.step.kind() == discarded); {
		case left && gone.IsZero():
			gone = r.done
		case left:
			j.twice++
		}
	}
	if len(j.parked[p.id]) > 1 {
		j.explained(p.id, "parked more than once", from, receipts[len(receipts)-1].at.Add(liveness))
	}
}

func (j *judgement) explained(id, what string, from, to time.Time) {
	if !slices.ContainsFunc(j.struck, func(f *fault) bool { return f.reason(from, to) }) {
		j.say("I6 %s: %s, and no fault explains it: %s", id, what, j.story(id))
	}
}

// bounds: one fault doubles no more than was in hand.
func (j *judgement) bounds() {
	n := 0
	for _, f := range j.struck {
		if f.explains() {
			n++
		}
	}
	if j.twice > n*j.s.prefetch {
		j.say("I6 %d messages were accepted once more: more than %d faults with %d messages in hand", j.twice, n, j.s.prefetch)
	}
}

// story is what happened to a message, on one line.
func (j *judgement) story(id string) string {
	b := &bytes.Buffer{}
	for _, r := range j.receipts[id] {
		fmt.Fprintf(b, "[%v retries=%d", r.at.Sub(j.began).Round(time.Millisecond), r.retries)
		switch {
		case r.killed:
			fmt.Fprint(b, " app died")
		case !r.answered:
			fmt.Fprint(b, " interrupted")
		case r.step.failure != message.FailureNone:
			fmt.Fprintf(b, " %s", r.step.failure)
		default:
			fmt.Fprintf(b, " %d", r.step.status)
		}
		fmt.Fprint(b, "] ")
	}
	return fmt.Sprintf("%sparked %d times", b, len(j.parked[id]))
}

// order: with one worker, a window of one, nothing but 200 and no fault, messages arrive as they were sent.
func (j *judgement) order() {
	simple := j.s.concurrency == 1 && j.s.prefetch == 1 && len(j.struck) == 0
	for _, p := range j.s.messages {
		simple = simple && len(p.steps) == 1 && p.steps[0].kind() == accepted
	}
	if simple && !slices.Equal(j.ledger.order, j.first) {
		j.say("I8 sent %v, received %v", j.ledger.order, j.first)
	}
}

// metrics: what each sidecar counted adds up, and without faults it is what everybody else saw.
func (j *judgement) metrics() {
	sum := map[string]int{}
	for i, b := range j.books {
		settled := b.stale
		for outcome, n := range b.settled {
			settled += n
			sum[outcome] += n
		}
		if settled != b.received {
			j.say("I11 sidecar %d: received %d, settled or stale %d", i, b.received, settled)
		}
	}
	if len(j.struck) > 0 {
		return
	}
	for outcome, want := range map[string]int{
		"ack": j.totals[accepted], "park": len(j.ledger.parked), "discard": j.totals[discarded],
		"retry": j.totals[failed] + j.totals[notYet] + j.totals[unwanted] - len(j.ledger.parked) - sum["requeue"],
	} {
		if sum[outcome] != want {
			j.say("I11 the metrics count %d of %s, the ledgers %d", sum[outcome], outcome, want)
		}
	}
}
