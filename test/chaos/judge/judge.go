package judge

import (
	"fmt"
	"slices"
	"time"

	kit "sidecar/internal/testkit/judge"
	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
)

// Invariant is one statement that must hold.
type Invariant struct {
	ID         string   `json:"id"`
	Statement  string   `json:"statement"`
	Violations int      `json:"violations"`
	Idle       bool     `json:"idle,omitempty"` // the run had nothing it speaks about
	Examples   []string `json:"examples,omitempty"`
}

// examples is how many violations are listed; the rest is counted.
const examples = 5

// Verdict is what the judge says.
type Verdict struct {
	Run        ledger.Run     `json:"run"`
	Invariants []*Invariant   `json:"invariants"`
	Confirmed  int            `json:"confirmed"`
	Unknown    int            `json:"unknown"`
	Receipts   int            `json:"receipts"`
	Parked     int            `json:"parked"`
	Lost       int            `json:"lost"`
	MayLose    bool           `json:"may_lose"` // lost is measured, not judged
	Duplicates map[string]int `json:"explained_duplicates"`
	GivenBack  GivenBack      `json:"given_back"`
	Limited    int            `json:"limited"` // parked by the broker, at its delivery limit
	Faults     []Recovery     `json:"faults"`
	DelayP50   time.Duration  `json:"delay_p50_ns"` // from confirm to first receipt
	DelayP99   time.Duration  `json:"delay_p99_ns"`
	RetryP50   time.Duration  `json:"retry_p50_ns"` // from a failed answer to the next receipt
	RetryP99   time.Duration  `json:"retry_p99_ns"`
	Resources  []ledger.Resources
	Rates      []float64 `json:"slow_answers_per_second"` // before and after the faults
	Sources    []Figures `json:"sources,omitempty"`       // beside the publisher at the broker
}

// Recovery is how long the faults of one kind took to get over, from their end to the next receipt.
type Recovery struct {
	Kind   string        `json:"kind"`
	Count  int           `json:"count"`
	Failed int           `json:"failed"` // could not be made to happen
	P50    time.Duration `json:"p50_ns"`
	Max    time.Duration `json:"max_ns"`
}

// OK reports whether every invariant holds.
func (v *Verdict) OK() bool {
	return !slices.ContainsFunc(v.Invariants, func(i *Invariant) bool { return i.Violations > 0 })
}

// Broken lists the invariants that do not hold.
func (v *Verdict) Broken() []string {
	var ids []string
	for _, i := range v.Invariants {
		if i.Violations > 0 {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

// The invariants, in their order.
var statements = []Invariant{
	{ID: "I1", Statement: "no loss: what was confirmed was answered with 2xx, is parked, or is still in a queue; in the " +
		"end no queue holds anything"},
	{ID: "I2", Statement: "no false ack: what is gone was answered with 2xx"},
	{ID: "I3", Statement: "no invention: what was received was published, unchanged, and made no header of its own"},
	{ID: "I4", Statement: "what is parked says why, and truly"},
	{ID: "I5", Statement: "without faults: exact receipts, exact counts, never before the delay"},
	{ID: "I6", Statement: "a fault explains every duplicate, and no more of them than it can cause"},
	{ID: "I7", Statement: "only what always fails is parked, and only what was tried is counted"},
	{ID: "I8", Statement: "one at a time and nothing fails: first in, first out"},
	{ID: "I9", Statement: "after every fault it goes on"},
	{ID: "I10", Statement: "goroutines, descriptors, memory and connections are as before, and no more requests are " +
		"under way than allowed"},
	{ID: "I11", Statement: "what the metrics count adds up"},
	{ID: "I12", Statement: "what the publish endpoint answered with 2xx is in the broker, what it answered with 4xx " +
		"never is, and without a fault the result is always known"},
	{ID: "I13", Statement: "a committed row of the outbox is sent, once it is marked so it was, and one that was rolled " +
		"back never is"},
	{ID: "I14", Statement: "a redriven message goes on counting: one try, then it is parked again"},
	{ID: "I15", Statement: "no secret and no body in logs, metrics and headers"},
	{ID: "I18", Statement: "a batch that fails as a whole counts for none of its messages, and what was tried or " +
		"delivered before is alone in its request"},
}

type judge struct {
	*books
	common kit.Judge
	dir    string
	v      *Verdict
	by     map[string]*Invariant
	blamed map[*ledger.Fault]int // attempts that were counted and that the app never saw
}

// Judge reads the run in dir.
func Judge(dir string) (*Verdict, error) {
	b, err := open(dir)
	if err != nil {
		return nil, err
	}
	j := &judge{books: b, dir: dir, v: &Verdict{Run: b.run, MayLose: b.run.MayLose, Duplicates: map[string]int{},
		Resources: b.resources},
		by: map[string]*Invariant{}, blamed: map[*ledger.Fault]int{}}
	j.common = kit.Judge{Queue: b.run.Queue, MarkHeader: plan.HeaderMark, MaxRetries: b.run.MaxRetries,
		Violated: j.violated}
	for _, s := range statements {
		j.by[s.ID] = &s
		j.v.Invariants = append(j.v.Invariants, &s)
	}
	for _, s := range b.strangers {
		j.violated("I3", "message %s is none of this run's", s)
	}
	dups := newDuplicates(j)
	for seq := range j.messages {
		m := &j.messages[seq]
		if m.pub == nil {
			if len(m.Receipts)+len(m.Parked) > 0 {
				j.violated("I3", "message %d (%s) was received and never published", seq, m.source)
			}
			continue
		}
		j.message(m)
		dups.look(m)
	}
	dups.bound()
	j.by["I18"].Idle = j.run.Gather < 2
	for _, m := range j.mixed {
		j.violated("I18", "%s", m)
	}
	j.by["I14"].Idle = !slices.ContainsFunc(j.messages, func(m message) bool { return len(m.redriven) > 0 })
	j.endpoint()
	j.outbox()
	j.boundUnseen()
	j.order()
	j.keepsUp()
	j.inTime()
	j.goesOn()
	j.holds()
	if err := j.metrics(); err != nil {
		return nil, err
	}
	if err := j.secrets(); err != nil {
		return nil, err
	}
	j.figures()
	return j.v, nil
}

func (j *judge) violated(id, format string, args ...any) {
	i := j.by[id]
	if i.Violations++; len(i.Examples) < examples {
		i.Examples = append(i.Examples, fmt.Sprintf(format, args...))
	}
}

// message judges one message.
func (j *judge) message(m *message) {
	switch m.pub.Result {
	case ledger.Confirmed:
		j.v.Confirmed++
	case ledger.Unknown:
		j.v.Unknown++
	}
	j.v.Receipts += len(m.Receipts)
	j.v.Parked += min(1, len(m.Parked))
	kept := j.common.Kept(&m.Message, j.run.MayLose && j.inTransit(m))
	if !kept {
		j.v.Lost++
	}
	j.common.Unchanged(&m.Message)
	from, to := m.life()
	if kept && m.Confirmed && len(j.during(from, to, "SAPB"))+len(j.relayed(m)) == 0 && !j.forgets(from, to) {
		j.exact(m)
	}
	j.counted(m)
	j.alone(m)
	j.rightlyParked(m)
}

// inTransit reports whether a broker was killed while the message, or what the broker had not yet written down of it,
// was on its way through the retry queue.
func (j *judge) inTransit(m *message) bool {
	if len(m.Receipts) == 0 {
		return false
	}
	last := &m.Receipts[len(m.Receipts)-1]
	if last.Status == 425 {
		return false
	}
	to := max(last.Done, last.At+int64(j.run.AppTimeout)) + int64(j.run.RetryDelay) + rollback
	return slices.ContainsFunc(j.faults, func(f ledger.Fault) bool {
		// The kill is somewhere between start and end.
		return (f.Kind == brokerKilled || f.Kind == nodeKilled) && f.End >= last.At && f.Start <= to
	})
}

// early is how much sooner than the delay a retry may seem to come: brokers count in milliseconds.
const early = int64(5 * time.Millisecond)

// exact is I5, for a message in whose life nothing went wrong.
func (j *judge) exact(m *message) {
	j.common.Exact(&m.Message, m.plan.Receipts(j.run.MaxRetries)+len(m.redriven))
	for i := range m.Receipts {
		r := &m.Receipts[i]
		if i > 0 && len(m.redriven) == 0 {
			before := &m.Receipts[i-1]
			if whole(before) { // it goes out again at once
				continue
			}
			if pause := r.At - before.Begun; pause < int64(j.delay(before, r))-early {
				j.violated("I5", "message %d came again %s after %d", m.pub.Seq, time.Duration(pause), before.Status)
			}
		}
		if took := time.Duration(r.Done - r.At); r.Status == ledger.Hung && took > j.run.AppTimeout+patience {
			j.violated("I9", "message %d was waited for for %s", m.pub.Seq, took)
		}
	}
}

// patience is how much longer than its timeout an attempt may be under way.
const patience = 5 * time.Second

// delay is how long a message must stay away at least between two receipts, of which the first was no success.
func (j *judge) delay(before, r *kit.Receipt) time.Duration {
	switch before.Status {
	case ledger.Hung: // the sidecar gave up before the app noticed
		return 0
	case 425:
		for _, f := range j.during(before.At, r.At, ClassNone) {
			if f.Kind == SidecarEnded { // resumes a stopped one
				return 0
			}
		}
		return min(j.run.RequeueDelay, j.run.RetryDelay) // what cannot sleep in the sidecar waits like a retry
	}
	return j.run.RetryDelay
}

// counted is I7's second half and I14: no attempt is counted that was not made, and none is forgotten.
func (j *judge) counted(m *message) {
	failed := 0
	for i := range m.Receipts {
		r := &m.Receipts[i]
		if r.Count > failed && r.Count > failed+j.attempts(m.pub.Sent, r.At) {
			j.violated("I7", "message %d: receipt %d said retry count %d after %d failures", m.pub.Seq, i+1, r.Count, failed)
		}
		j.unseen(m, i)
		if i > 0 && r.Count < m.Receipts[i-1].Count && !j.takesBack(&m.Receipts[i-1], r.At) &&
			len(j.doubled(m, i))+len(j.relayed(m)) == 0 {
			id := "I5"
			if slices.ContainsFunc(m.redriven, func(at int64) bool { return at <= r.At }) {
				id = "I14"
			}
			j.violated(id, "message %d: the retry count fell from %d to %d", m.pub.Seq, m.Receipts[i-1].Count, r.Count)
		}
		if r.Kind == kit.Failed {
			failed++
		}
	}
}

// order is I8.
func (j *judge) order() {
	if j.run.Concurrency != 1 || j.run.Prefetch != 1 || len(j.faults) > 0 {
		j.by["I8"].Idle = true
		return
	}
	var sent []*kit.Message
	for seq := range j.messages {
		m := &j.messages[seq]
		if m.pub != nil && m.plan.Kind == plan.OK && len(m.Receipts) > 0 {
			sent = append(sent, &m.Message)
		}
	}
	j.common.Order(sent)
}
