package sim

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"sidecar/internal/message"
	"sidecar/internal/sim/model"
	"sidecar/internal/testkit/judge"
)

// judgement collects what is wrong. Every line begins with the invariant. Those about one message are in package judge;
// beside them
//
//	I6   no fault explains more duplicates than were in flight, and nothing is POSTed that the broker has taken back
//	I9   everything comes to rest after the faults have healed
//	I11  the sidecar's metrics say the same
type judgement struct {
	*ledger
	judge.Judge
	s        *settings
	lines    []string
	messages map[string]*judge.Message
	exact    bool // nothing happened that could explain a duplicate
	twice    int  // messages that were accepted once more
	totals   map[judge.Kind]int
}

func (l *ledger) judge(s *settings) *judgement {
	j := &judgement{ledger: l, s: s, messages: map[string]*judge.Message{}, totals: map[judge.Kind]int{}}
	j.Judge = judge.Judge{Queue: s.plan.Queue, MarkHeader: "mine", MaxRetries: s.plan.MaxRetries, Violated: j.violated}
	j.exact = !slices.ContainsFunc(l.struck, func(f *fault) bool { return f.explains() || j.forgets(f) || f.givesBack(l.struck) })
	for _, p := range s.messages {
		j.messages[p.id] = j.record(p)
	}
	for _, m := range l.parked {
		of := j.messages[m.MessageID]
		if of == nil {
			j.violated("I3", "%q is parked, and is not a message of this run", m.MessageID)
			continue
		}
		of.Parked = append(of.Parked, parked(m))
	}
	j.lines = append(j.lines, l.strange...)
	if !l.idle {
		j.violated("I9", "not at rest after %v", liveness)
	}
	for _, d := range l.dropped {
		j.violated("I1", "%s was thrown away by the broker: %s from %s", d.MessageID, d.Why, d.Queue)
	}
	for _, p := range s.messages {
		j.message(p)
	}
	j.bounds()
	j.order()
	j.metrics()
	return j
}

func (j *judgement) violated(id, format string, args ...any) {
	j.lines = append(j.lines, id+" "+fmt.Sprintf(format, args...))
}

// message judges one message.
func (j *judgement) message(p *parcel) {
	if _, sent := j.sent[p.id]; !sent {
		j.violated("I9", "%s was never sent", p.id)
		return
	}
	m, receipts := j.messages[p.id], j.receipts[p.id]
	for _, r := range m.Receipts {
		if r.Kind != judge.Nothing {
			j.totals[r.Kind]++
		}
	}
	j.Kept(m, !j.idle)
	j.Unchanged(m)
	for _, r := range receipts {
		if r.stale && !slices.ContainsFunc(j.struck, func(f *fault) bool { return f.hides(r.at) }) {
			j.violated("I6", "%s was POSTed after %v, when the broker had taken it back", m.Name, r.at.Sub(j.began))
		}
	}
	want := p.fate(j.MaxRetries)
	killed := slices.ContainsFunc(receipts, func(r *receipt) bool { return r.killed }) // a failed attempt that the parcel does not know of
	j.rightlyParked(m, want, receipts, killed)
	if !j.exact || killed {
		j.duplicates(m, want, receipts)
		return
	}
	j.Exact(m, want.attempts)
	if end := len(m.Parked); (want.end == judge.Failed || want.end == judge.Unwanted) != (end == 1) || end > 1 {
		j.violated("I5", "parked %d times, of a message that has to end as %d: %s", end, want.end, m.Name)
	}
}

// duplicates judges a message that met a fault.
func (j *judgement) duplicates(m *judge.Message, want fate, receipts []*receipt) {
	if len(receipts) == 0 {
		return
	}
	repeats := func(at time.Time) func(*fault) bool { return func(f *fault) bool { return f.repeats(j.struck, at) } }
	from, last := receipts[0].at, receipts[len(receipts)-1].at
	j.Duplicates(m, func(_, n int) {
		j.explained(m, "delivered after it had been accepted", from, receipts[n].at, repeats(receipts[n].at))
		if m.Receipts[n].Kind.Ends() {
			j.twice++
		}
	}, func() { j.explained(m, "parked more than once", from, last.Add(liveness), (*fault).explains) })
	n := 0
	for _, f := range j.struck {
		if f.givesBack(j.struck) {
			n--
		}
	}
	for _, r := range receipts {
		if r.answered && !r.killed {
			if n++; n > want.attempts && !slices.ContainsFunc(j.struck, j.forgets) {
				j.explained(m, "more attempts than its plan", from, r.at, repeats(r.at))
			}
		}
	}
}

// forgets reports whether a fault ends a process that alone knew how often messages had failed.
func (j *judgement) forgets(f *fault) bool { return f.what == sigterm && j.s.plan.DelaysItself() }

func (j *judgement) explained(m *judge.Message, what string, from, to time.Time, may func(*fault) bool) {
	if !slices.ContainsFunc(j.struck, func(f *fault) bool { return may(f) && f.reason(from, to) }) {
		j.violated("I6", "%s, and no fault explains it: %s", what, m.Name)
	}
}

// bounds: one fault doubles no more than was in flight.
func (j *judgement) bounds() {
	n := 0
	for _, f := range j.struck {
		if f.explains() {
			n++
		}
	}
	if j.twice > n*j.s.prefetch {
		j.violated("I6", "%d messages were accepted once more: more than %d faults with %d messages in flight", j.twice, n, j.s.prefetch)
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
	return b.String()
}

// order: with one worker, a window of one, nothing but 200 and no fault, messages arrive as they were sent.
func (j *judgement) order() {
	simple := j.s.concurrency == 1 && j.s.prefetch == 1 && len(j.struck) == 0
	for _, p := range j.s.messages {
		simple = simple && len(p.steps) == 1 && p.steps[0].kind() == judge.Accepted && len(j.receipts[p.id]) > 0
	}
	if simple {
		var sent []*judge.Message
		for _, id := range j.ledger.order {
			sent = append(sent, j.messages[id])
		}
		j.Order(sent)
	}
}

// metrics: what each sidecar counted adds up, and without faults it is what all others saw.
func (j *judgement) metrics() {
	sum := map[string]int{}
	for i, b := range j.books {
		settled := b.stale
		for outcome, n := range b.settled {
			settled += n
			sum[outcome] += n
		}
		if settled != b.received {
			j.violated("I11", "sidecar %d: received %d, settled or stale %d", i, b.received, settled)
		}
	}
	if len(j.struck) > 0 {
		return
	}
	for outcome, want := range map[string]int{
		"ack": j.totals[judge.Accepted], "park": len(j.parked), "discard": j.totals[judge.Discarded],
		"retry": j.totals[judge.Failed] + j.totals[judge.NotYet] + j.totals[judge.Unwanted] - len(j.parked) - sum["requeue"],
	} {
		if sum[outcome] != want {
			j.violated("I11", "the metrics count %d of %s, the ledgers %d", sum[outcome], outcome, want)
		}
	}
}

// record returns what is known of a message, except for where it was parked.
func (j *judgement) record(p *parcel) *judge.Message {
	m := &judge.Message{Name: fmt.Sprintf("%s (%s)", p.id, j.story(p.id)), Sum: string(p.sum[:]), Mark: p.id, Confirmed: true}
	for _, r := range j.receipts[p.id] {
		k := judge.Nothing
		if r.answered {
			k = r.step.kind()
		}
		m.Receipts = append(m.Receipts, judge.Receipt{At: r.at.UnixNano(), Attempt: r.retries + 1, Count: r.retries,
			Status: r.step.status, Kind: k, MayEnd: k.Ends(), Mark: p.id}) // the app compares body and header itself
	}
	return m
}

func parked(m model.Message) *judge.Parked {
	sum := sha256.Sum256(m.Body)
	p := &judge.Parked{Sum: string(sum[:]), Persistent: m.DeliveryMode == 2, Expiration: m.Expiration, Headers: map[string]string{}, Types: map[string]string{}}
	for k, v := range m.Headers {
		p.Headers[k], p.Types[k] = fmt.Sprint(v), fmt.Sprintf("%T", v)
	}
	return p
}

// rightlyParked judges what is in the dead-letter queue, also for another reason than too many failures.
func (j *judgement) rightlyParked(m *judge.Message, want fate, receipts []*receipt, killed bool) {
	unanswered := slices.ContainsFunc(receipts, func(r *receipt) bool { return r.answered && r.step.failure != message.FailureNone })
	j.Parked(m, 0, unanswered, func(p *judge.Parked, retries int) {
		if reason := p.Headers["x-final-reason"]; reason != "park_status" && reason != "disposition" {
			j.violated("I4", "x-final-reason %q: %s", reason, m.Name)
		}
		if want.end != judge.Unwanted {
			j.violated("I7", "parked, and the app did not ask for it: %s", m.Name)
		}
		if !killed && (retries > want.retries || j.exact && retries != want.retries) {
			j.violated("I4", "x-final-retry-count %d: %s", retries, m.Name)
		}
	})
	for _, p := range m.Parked {
		if n := len(m.Receipts); j.exact && n > 0 && !p.Because(&m.Receipts[n-1]) {
			j.violated("I4", "the last attempt is not why, headers %v: %s", p.Headers, m.Name)
		}
	}
}
