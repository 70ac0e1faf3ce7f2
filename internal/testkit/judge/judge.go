// Package judge holds the invariants that every run of a whole sidecar has to keep, in the simulation (internal/sim)
// and with real processes (test/chaos/judge). They are about one message: its publication, its receipts by the app with
// the answers, and its copies in the dead-letter queue.
//
// Each caller keeps the checks that need something that the other one does not have:
//
//   - Which faults explain a duplicate, a failed attempt that the app did not see or a lost message. The simulation
//     records the frame at which a fault happened and allows one prefetch per fault. A fault between real processes has
//     a window and a class, and each has a room of its own for duplicates and hidden attempts.
//   - The required end of a message. The simulation has dispositions, 422 and an app that dies inside an attempt, and
//     works out one fate. A chaos plan is drawn for a process and has neither.
//   - The part of I6 about a failed attempt that is repeated without being counted. The simulation compares the number
//     of attempts with the fate, the chaos run compares the retry counts of two receipts.
//   - Delays between attempts. The simulation does not check them; the chaos run does, with the slack of a real clock.
//   - I9 and I11. Coming to rest in virtual time is one condition, recovery of processes is a set of bounds; one run
//     reads the metrics of each sidecar that drained, the other one two scrapes of one sidecar.
//   - I10 and I12 to I15, which only processes, other sources and logs can break.
//
// docs/decisions/0023-what-the-suites-share.md says why each keeps its own record, and why other suites do not use
// this.
package judge

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Judge judges one message after the other.
type Judge struct {
	Queue      string // the service's
	MarkHeader string // the header that every message carries
	MaxRetries int

	// Violated records a violation of the invariant id.
	Violated func(id, format string, args ...any)
}

// Kept is I1 and I2: it returns false for a message that is gone. mayLack says that this one may be.
func (j *Judge) Kept(m *Message, mayLack bool) bool {
	if m.Queued > 0 {
		j.Violated("I1", "%s is still in a queue", m.Name)
	}
	n := len(m.Receipts)
	switch {
	case m.Queued > 0 || len(m.Parked) > 0 || slices.ContainsFunc(m.Receipts, func(r Receipt) bool { return r.MayEnd }):
		return true
	case !m.Confirmed && n == 0: // it may never have existed
		return true
	case mayLack:
	case n == 0:
		j.Violated("I1", "%s is gone and was never received", m.Name)
	default:
		j.Violated("I2", "%s is gone: %d receipts, the last answered %d", m.Name, n, m.Receipts[n-1].Status)
	}
	return false
}

// Unchanged is I3.
func (j *Judge) Unchanged(m *Message) {
	for i := range m.Receipts {
		switch r := &m.Receipts[i]; {
		case r.Odd != "":
			j.Violated("I3", "%s arrived with %s", m.Name, r.Odd)
		case r.Sum != "" && r.Sum != m.Sum:
			j.Violated("I3", "%s arrived with another body", m.Name)
		case r.Mark != m.Mark:
			j.Violated("I3", "%s arrived with the header %q", m.Name, r.Mark)
		}
	}
	for _, p := range m.Parked {
		if p.Sum != m.Sum || p.Changed || p.Headers[j.MarkHeader] != m.Mark {
			j.Violated("I3", "%s was parked with another body, property or header", m.Name)
		}
	}
}

// longestError is the length of x-final-error in bytes.
const longestError = 1024

var integers = []string{"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}

// Parked is I4 and I7. hidden is how many attempts may have failed that the app did not see, unanswered whether one may
// have had no answer. unwanted judges what was parked for another reason than max_retries; nil: nothing may be.
func (j *Judge) Parked(m *Message, hidden int, unanswered bool, unwanted func(p *Parked, retries int)) {
	for _, p := range m.Parked {
		j.says(m, p, unanswered, unwanted)
		if n := m.Failures(j.MaxRetries); p.Headers["x-final-reason"] == "max_retries" && n+hidden <= j.MaxRetries {
			j.Violated("I7", "%s was parked after %d failures", m.Name, n)
		}
	}
}

// says checks the properties and headers of a parked message.
func (j *Judge) says(m *Message, p *Parked, unanswered bool, unwanted func(*Parked, int)) {
	is := func(ok bool, what string) {
		if !ok {
			j.Violated("I4", "%s: %s; headers %v", m.Name, what, p.Headers)
		}
	}
	is(p.Persistent, "parked, but not persistent")
	is(p.Expiration == "", "parked with an expiration")
	is(p.Headers["x-original-queue"] == j.Queue, "x-original-queue is wrong")
	retries, err := strconv.Atoi(p.Headers["x-final-retry-count"])
	is(err == nil && slices.Contains(integers, p.Types["x-final-retry-count"]), "x-final-retry-count is not an integer")
	if reason := p.Headers["x-final-reason"]; reason == "max_retries" || unwanted == nil {
		is(reason == "max_retries", "x-final-reason is wrong")
		is(retries == j.MaxRetries, "x-final-retry-count is wrong")
	} else {
		unwanted(p, retries)
	}
	_, answered := p.Headers["x-final-status-code"]
	text, failed := p.Headers["x-final-error"]
	is(answered != failed, "not exactly one of x-final-status-code and x-final-error")
	is(failed == (text != "") && len(text) <= longestError && utf8.ValidString(text) &&
		!strings.ContainsAny(text, "\r\n"), "x-final-error is not a short line of text")
	if !answered {
		is(unanswered, "the app always answered, but there is no x-final-status-code")
		return
	}
	is(slices.Contains(integers, p.Types["x-final-status-code"]), "x-final-status-code is not an integer")
	is(slices.ContainsFunc(m.Receipts, func(r Receipt) bool { return p.Because(&r) }),
		"the app never answered x-final-status-code")
}

// Exact is I5, for a message that was published once and met no fault: it was attempted want times, and the sidecar
// sent the number of failures so far as the retry count each time.
func (j *Judge) Exact(m *Message, want int) {
	n, failed := 0, 0
	for i := range m.Receipts {
		r := &m.Receipts[i]
		if r.Count != min(failed, j.MaxRetries) || r.Attempt != r.Count+1 {
			j.Violated("I5", "%s: receipt %d after %d failures said retry count %d, attempt %d", m.Name, i+1, failed, r.Count,
				r.Attempt)
		}
		if r.Kind == Failed {
			failed++
		}
		if r.Kind != Nothing {
			n++
		}
	}
	if n != want {
		j.Violated("I5", "%s was attempted %d times, want %d", m.Name, n, want)
	}
}

// Duplicates is I6: a fault has to explain every receipt n after receipt done ended the message, and every parked
// message beyond the first. The two functions search for that fault and report when there is none.
func (j *Judge) Duplicates(m *Message, explain func(done, n int), explainParked func()) {
	done := -1
	for i := range m.Receipts {
		if done >= 0 {
			explain(done, i)
		}
		if m.Receipts[i].Kind.Ends() {
			done = i
		}
	}
	for range len(m.Parked) - 1 {
		explainParked()
	}
}

// Order is I8, for messages in the order in which they were sent, of a run with one message at a time and no fault.
// Each was received.
func (j *Judge) Order(sent []*Message) {
	for i := 1; i < len(sent); i++ {
		if sent[i].Receipts[0].At < sent[i-1].Receipts[0].At {
			j.Violated("I8", "%s overtook %s", sent[i].Name, sent[i-1].Name)
		}
	}
}
