package judge

import (
	"slices"

	"sidecar/test/chaos/ledger"
)

// Where the service's queue delays retries itself nothing is written into a message that fails. The process remembers
// its attempts (ledger.Run.Forgets): they survive lost connections, and the end of the process gives them back.

// ends are the kinds of faults that end a sidecar.
var ends = []string{"sidecar-kill", SidecarEnded, "sidecar-hurry"}

// GivenBack are attempts that are made again because the process that had counted them has ended.
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

// forgotten are the faults of a time after which attempts are not known any more.
func (b *books) forgotten(from, to int64) []*ledger.Fault {
	if !b.run.Forgets {
		return nil
	}
	return slices.DeleteFunc(b.during(from, to, "SN"), func(f *ledger.Fault) bool { return !slices.Contains(ends, f.Kind) })
}

// takesBack are the faults of a time after which a count may be lower than before. A lost connection is none where the
// process remembers.
func (b *books) takesBack(from, to int64) []*ledger.Fault {
	if b.run.Forgets {
		return b.forgotten(from, to)
	}
	return b.during(from, to, "SPB")
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
