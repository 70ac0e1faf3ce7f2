package queues

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	kit "sidecar/internal/testkit/judge"
	"sidecar/test/chaos/judge"
	"sidecar/test/chaos/ledger"
)

// message is all that is known of one.
type message struct {
	kit.Message
	name Name
	sent *Sent
	plan []answer
}

// books are the ledgers of a run.
type books struct {
	run       Run
	messages  [][][]*message // by queue, key and number
	strangers []string
	faults    []Fault
	probes    []ledger.Probe
	exits     []ledger.Exit
}

type verdict struct {
	*books
	by  map[string]*judge.Invariant
	all []*judge.Invariant
	kit kit.Judge
	// Figures of the run.
	Sent, Receipts, Parked, Lost, Repeated int
	Waited                                 time.Duration // the longest of a message that no fault of its own concerns
}

// statements are the invariants, by their numbers in the other storm and in the simulation.
var statements = []judge.Invariant{
	{ID: "I1", Statement: "no loss: what was confirmed was answered with 2xx or is parked, unless its queue was deleted " +
		"or purged"},
	{ID: "I2", Statement: "no false ack: what is gone was answered with 2xx"},
	{ID: "I3", Statement: "no invention: what was received was published, and reached the path of its own queue"},
	{ID: "I5", Statement: "without faults: exact receipts, exact counts, never before the delay"},
	{ID: "I9", Statement: "after every fault each queue goes on, and in the end nothing is left"},
	{ID: "I16", Statement: "per key one at a time, in the order in which they were published, a retry beside its attempt"},
	{ID: "I17", Statement: "what happens to one queue repeats, parks and delays no message of another"},
}

// Judge reads the run in dir. The report is a page for people.
func Judge(dir string) (v *judge.Verdict, report string, err error) {
	b, err := open(dir)
	if err != nil {
		return nil, "", err
	}
	j := &verdict{books: b, by: map[string]*judge.Invariant{}}
	for _, s := range statements {
		s.Idle = s.ID == "I16" && b.run.Ordered == 0
		j.by[s.ID] = &s
		j.all = append(j.all, &s)
	}
	j.kit = kit.Judge{MaxRetries: b.run.MaxRetries, Violated: j.violated}
	for _, s := range b.strangers {
		j.violated("I3", "%s", s)
	}
	for q := range b.run.Queues {
		j.queue(q)
	}
	j.goesOn()
	return &judge.Verdict{Invariants: j.all, Confirmed: j.Sent, Receipts: j.Receipts, Parked: j.Parked, Lost: j.Lost},
		j.page(), nil
}

func (j *verdict) violated(id, format string, args ...any) {
	i := j.by[id]
	if i.Violations++; len(i.Examples) < 5 {
		i.Examples = append(i.Examples, fmt.Sprintf(format, args...))
	}
}

// queue judges the messages of one queue.
func (j *verdict) queue(q int) {
	own := j.concerning(q, true)
	var all []*kit.Message
	gone := 0
	for _, key := range j.messages[q] {
		var sent []*kit.Message
		for _, m := range key {
			if m.sent == nil {
				j.violated("I3", "%s was received and never published", m.Name)
				continue
			}
			m.Taken = j.took(m, QueueDeleted, Redeclared, Purged)
			sent = append(sent, &m.Message)
			gone += j.message(m)
		}
		if q < j.run.Ordered {
			j.kit.ByKey(sent, own)
		}
		all = append(all, sent...)
	}
	j.kit.Unnoticed(all, own, j.run.Within, func(m *kit.Message) bool { return j.mayWait(q, m) })
	if n := j.purged(q); gone > n {
		j.violated("I1", "%d messages of %s are gone, and %d were purged", gone, j.run.Queues[q], n)
	}
}

// message judges one, and returns 1 if it is gone and a purge may have taken it.
func (j *verdict) message(m *message) int {
	if m.Confirmed {
		j.Sent++
	}
	j.Receipts += len(m.Receipts)
	j.Parked += min(1, len(m.Parked))
	for i := range m.Receipts[:max(0, len(m.Receipts)-1)] {
		if m.Receipts[i].Kind.Ends() {
			j.Repeated++
		}
	}
	deleted := j.took(m, QueueDeleted, Redeclared)
	purged := !deleted && j.took(m, Purged)
	if !j.kit.Kept(&m.Message, deleted || purged) {
		j.Lost++
		if purged {
			return 1
		}
		return 0
	}
	if m.Confirmed && !deleted && !purged && !j.disturbed(m) {
		j.exact(m)
	}
	return 0
}

// lag is how long before a fault the last sign of a message may be that was in the queue then: no fault begins before
// the sidecars have caught up with the publisher.
const lag = int64(5 * time.Second)

// took reports whether a fault of a kind may have taken the message with its queue.
func (j *verdict) took(m *message, kinds ...string) bool {
	last := m.sent.Done
	if n := len(m.Receipts); n > 0 {
		last = max(last, m.Receipts[n-1].At, m.Receipts[n-1].Done)
	}
	return slices.ContainsFunc(j.faults, func(f Fault) bool {
		return f.Queue == m.name.Queue && slices.Contains(kinds, f.Kind) && m.sent.At <= f.End && last >= f.Start-lag
	})
}

// purged counts the messages that were purged from a queue.
func (j *verdict) purged(q int) (n int) {
	for _, f := range j.faults {
		if f.Queue == q {
			n += f.Purged
		}
	}
	return n
}

// effect is how long after a fault its effects may show.
const effect = int64(3 * time.Second)

// disturbed reports whether a fault that concerns the message happened in its life. After a failed attempt there is one
// more, which an app that is killed may not have recorded.
func (j *verdict) disturbed(m *message) bool {
	from, to := m.sent.At, m.sent.Done
	for i := range m.Receipts {
		to = max(to, m.Receipts[i].At, m.Receipts[i].Done)
	}
	if n := len(m.Receipts); n > 0 && m.Receipts[n-1].Kind == kit.Failed {
		to += int64(j.run.RetryDelay + time.Second)
	}
	return slices.ContainsFunc(j.faults, func(f Fault) bool {
		return (f.Queue < 0 || f.Queue == m.name.Queue) && f.Start <= to && max(f.End, f.Recovered)+effect >= from
	})
}

// exact is I5 for a message in whose life nothing went wrong.
func (j *verdict) exact(m *message) {
	want := len(m.plan)
	if m.Fails {
		want = j.run.MaxRetries + 1
	}
	j.kit.Exact(&m.Message, want)
	if m.Fails != (len(m.Parked) == 1) {
		j.violated("I5", "%s is parked %d times", m.Name, len(m.Parked))
	}
	for i := 1; i < len(m.Receipts); i++ {
		before := &m.Receipts[i-1]
		pause := time.Duration(m.Receipts[i].At - before.Begun)
		if before.Kind == kit.Failed && pause < j.run.RetryDelay-5*time.Millisecond {
			j.violated("I5", "%s came again %s after %d", m.Name, pause, before.Status)
		}
	}
}

// concerning returns the faults of a queue and of all queues as the judge of messages reads them.
func (j *verdict) concerning(q int, repeats bool) (list []kit.Fault) {
	for _, f := range j.faults {
		if f.Queue >= 0 && f.Queue != q || repeats && f.Kind == SidecarEnded {
			continue
		}
		fault := kit.Fault{Start: f.Start, End: max(f.End, f.Recovered)}
		if f.Kind == BrokerKilled {
			fault.Undoes = 10 * time.Second
		}
		list = append(list, fault)
	}
	return list
}

// mayWait reports whether a message may arrive late although no fault excuses a repeat: a replica was stopped, or an
// earlier message of its key was not accepted at once.
func (j *verdict) mayWait(q int, m *kit.Message) bool {
	from, to := m.Since, m.Receipts[0].At
	for _, f := range j.concerning(q, false) {
		if f.Start <= to && f.End+effect >= from {
			return true
		}
	}
	if q < j.run.Ordered && j.run.Keys <= 4*j.run.Prefetch {
		return true // messages of few keys that wait behind failed ones fill the window, and then nothing is taken
	}
	n, _ := nameOf(j.run.ID, strings.Fields(m.Name)[1])
	waits := q < j.run.Ordered && slices.ContainsFunc(j.messages[q][n.Key][:n.N], func(before *message) bool {
		return slices.ContainsFunc(before.Receipts, func(r kit.Receipt) bool {
			return !r.Kind.Ends() && r.At <= to && r.At+int64(j.run.RetryDelay+j.run.AppTimeout) >= from
		})
	})
	if !waits {
		j.Waited = max(j.Waited, time.Duration(to-from))
	}
	return waits
}

// goesOn is I9.
func (j *verdict) goesOn() {
	for _, f := range j.faults {
		if f.Error != "" {
			j.violated("I9", "fault %d (%s) could not be made to happen: %s", f.ID, f.Kind, f.Error)
		} else if f.Recovered == 0 {
			j.violated("I9", "a queue received nothing any more after fault %d (%s)", f.ID, f.Kind)
		}
	}
	for _, p := range j.probes {
		if !p.OK {
			j.violated("I9", "%s: %s", p.Name, p.Text)
		}
	}
	for _, e := range j.exits {
		if !e.Wanted || e.Asked == "terminated" && e.Code != 0 && time.Duration(e.AskedAt-e.Started) > 2*time.Second {
			j.violated("I9", "a sidecar ended with %d %s, asked for %q", e.Code, e.Signal, e.Asked)
		}
	}
}

// page is the report.
func (j *verdict) page() string {
	var b strings.Builder
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) }
	say("| queues | keys | confirmed | receipts | parked | repeated by faults | purged or deleted | longest wait |")
	say("|---|---|---|---|---|---|---|---|")
	say("| %d | %d | %d | %d | %d | %d | %d | %s |\n", len(j.run.Queues), j.run.Keys, j.Sent, j.Receipts, j.Parked,
		j.Repeated, j.Lost, j.Waited.Round(time.Millisecond))
	kinds := map[string]int{}
	for _, f := range j.faults {
		kinds[f.Kind]++
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		say("- %s: %d", kind, kinds[kind])
	}
	say("\n| invariant | holds | |\n|---|---|---|")
	for _, i := range j.all {
		holds := "yes"
		switch {
		case i.Violations > 0:
			holds = fmt.Sprintf("**no, %d times**", i.Violations)
		case i.Idle:
			holds = "–"
		}
		say("| %s | %s | %s |", i.ID, holds, i.Statement)
	}
	for _, i := range j.all {
		for _, e := range i.Examples {
			say("- %s: %s", i.ID, e)
		}
	}
	say("\nThe same again: `%s`", j.run.Replay)
	return b.String()
}
