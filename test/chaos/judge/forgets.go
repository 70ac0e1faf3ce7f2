package judge

import (
	"slices"

	kit "sidecar/internal/testkit/judge"
	"sidecar/test/chaos/ledger"
)

// Where the service's queue delays retries itself nothing is written into a message that fails. The process remembers
// its attempts (ledger.Run.Forgets): they survive lost connections. The end of the process gives them back, and so does
// a second replica.

// ends are the kinds of faults that end a sidecar.
var ends = []string{"sidecar-kill", SidecarEnded, "sidecar-hurry"}

// GivenBack are attempts that are made again because no process that has the message now has counted them.
type GivenBack struct {
	Messages int `json:"messages"`
	Attempts int `json:"attempts"`
	Most     int `json:"most"` // of one message

	last *message
	of   int // last
}

// add counts n attempts of a message. All those of one message are added one after the other.
func (g *GivenBack) add(m *message, n int) {
	if g.last != m {
		g.last, g.of = m, 0
		g.Messages++
	}
	g.of += n
	g.Attempts += n
	g.Most = max(g.Most, g.of)
}

// forgets reports whether attempts of a time may not be known any more: a process has ended, or there are two, of which
// each knows its own.
func (b *books) forgets(from, to int64) bool {
	return b.run.Forgets && (b.run.Replicas > 1 || b.ended(from, to))
}

// ended reports whether the sidecar's process may have ended in a time.
func (b *books) ended(from, to int64) bool {
	return slices.ContainsFunc(b.during(from, to, "SN"),
		func(f *ledger.Fault) bool { return slices.Contains(ends, f.Kind) })
}

// takesBack reports whether a count may be lower at a time than in the receipt before. A lost connection is no reason
// where the process remembers, unless it has acked the message: nothing says that the ack was lost.
func (b *books) takesBack(before *kit.Receipt, to int64) bool {
	if !b.run.Forgets {
		return len(b.during(before.At, to, "SPB")) > 0
	}
	if before.Kind == kit.Accepted || before.Count >= b.run.MaxRetries {
		return len(b.during(before.At, before.Done+parking, "SPB")) > 0 || b.forgets(before.At, to)
	}
	return b.forgets(before.At, to)
}

// limited takes the copies out of parked that the broker has dead-lettered at its delivery limit. It counts lost
// connections as well as rejects, so these have to be enough together.
func (j *judge) limited(m *message, parked []*ledger.Parked) []*ledger.Parked {
	return slices.DeleteFunc(slices.Clone(parked), func(p *ledger.Parked) bool {
		if _, ours := p.Headers["x-final-reason"]; ours || p.Headers["x-last-death-reason"] != "delivery_limit" {
			return false
		}
		j.v.Limited++
		from, to := m.life()
		failed, lost := m.Failures(j.run.MaxRetries), 2*len(j.during(from, to, "SAPBN"))
		if j.run.Limit == 0 || failed+lost < j.run.Limit {
			j.violated("I4", "%s was dead-lettered by the broker at the limit of %d after %d failures and at most %d lost "+
				"connections", m.Name, j.run.Limit, failed, lost)
		}
		return true
	})
}
