package judge

import (
	kit "sidecar/internal/testkit/judge"
	"sidecar/test/chaos/ledger"
)

// The judge sees attempts in the app's ledger. Some are counted that are not there: the request was lost on its way, or
// waited in the kernel for an app that did not run. Only faults explain them, and each only so many.

// Kinds of faults in which a process does not run, but lives. Attempts then time out, one after the other.
const (
	SidecarStopped = "sidecar-stop"
	AppStopped     = "app-stop"
)

func suspends(f *ledger.Fault) bool { return f.Kind == SidecarStopped || f.Kind == AppStopped }

// hiders are the faults of a time that can fail an attempt before the app has seen it. A refused connection is no
// attempt, so an app that is away fails what it had in flight, and perhaps what met it on its way out or in.
func (b *books) hiders(from, to int64) []*ledger.Fault {
	all := b.during(from, to, ClassApp)
	for _, f := range b.during(from, to, ClassSidecar) {
		if f.Kind == SidecarStopped {
			all = append(all, f)
		}
	}
	return all
}

// attempts is how many attempts of one message the faults of a time can have failed.
func (b *books) attempts(from, to int64) int {
	n := 0
	for _, f := range b.hiders(from, to) {
		if suspends(f) {
			n += 1 + int((f.End-f.Start)/int64(b.run.AppTimeout+b.run.RetryDelay))
		} else {
			n += 2
		}
	}
	return n
}

// unseen finds a fault for the attempts that were counted between receipt n and the one before.
func (j *judge) unseen(m *message, n int) {
	r, from, counted := &m.Receipts[n], m.pub.Sent, 0
	if n > 0 {
		before := &m.Receipts[n-1]
		from, counted = before.At, before.Count
		if before.Kind == kit.Failed {
			counted++
		}
	}
	if j.run.Forgets && j.run.Replicas > 1 { // the attempt before may be the other one's
		before := m.Message
		before.Receipts = m.Receipts[:n]
		counted = before.Failures(j.run.MaxRetries)
	}
	if r.Count <= counted {
		return
	}
	var blamed *ledger.Fault
	for _, f := range j.hiders(from, r.At) {
		if blamed == nil || j.blamed[f]*j.mostUnseen(blamed) < j.blamed[blamed]*j.mostUnseen(f) {
			blamed = f
		}
	}
	if blamed != nil { // without one the message itself is wrong, see counted
		j.blamed[blamed] += r.Count - counted
	}
}

// mostUnseen is how many attempts a fault can hide, of all messages together: twice what can be under way at a time,
// because an app that is away takes some with it when it goes and some when it comes.
func (j *judge) mostUnseen(f *ledger.Fault) int {
	rounds := 1
	if suspends(f) {
		rounds += int((f.End - f.Start) / int64(j.run.AppTimeout))
	}
	return 2 * j.underWay() * rounds
}

// boundUnseen is the last part of I7.
func (j *judge) boundUnseen() {
	for f, n := range j.blamed {
		if most := j.mostUnseen(f); n > most {
			j.violated("I7", "fault %d (%s) explains at most %d attempts that the app never saw, there are %d", f.ID, f.Kind,
				most, n)
		}
	}
}
