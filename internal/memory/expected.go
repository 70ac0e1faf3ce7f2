package memory

import (
	"slices"
	"time"

	"sidecar/internal/message"
)

// entry is what is known of one message and of those that are equal.
type entry struct {
	post []expected    // to be POSTed
	done []expected    // with an outcome
	out  int           // attempts of lost sessions that have not ended
	over chan struct{} // closed when one of these ends; nil: no copy waits for it
}

// expected are copies that will be delivered.
type expected struct {
	outcome    *message.Outcome // settles the copy; nil: it is POSTed
	failed     int              // attempts; 0: its headers say all
	deliveries int              // that the broker will have counted at least, see Known
	copies     int
	rejected   time.Duration // of the oldest copy, to be delayed by the queue; 0: one was given back
	due        time.Duration // the broker delivers it, or it may be POSTed, from then on
}

// take takes out a copy that was delivered at most so often: connections may have been lost since, or another replica
// had it.
func (e *entry) take(now time.Duration, deliveries int) (x expected, ok bool) {
	for _, all := range []*[]expected{&e.post, &e.done} {
		best := -1
		for i, x := range *all {
			if x.deliveries <= deliveries && now-x.due <= keptFor && (best < 0 || x.deliveries > (*all)[best].deliveries) {
				best = i
			}
		}
		if best < 0 {
			continue
		}
		x = (*all)[best]
		if (*all)[best].copies--; x.copies == 1 {
			*all = slices.Delete(*all, best, best+1)
		}
		return x, true
	}
	return x, false
}

// expect makes a copy known that will be delivered.
func (m *Memory) expect(k *Known, x expected) {
	if k.queue != m.queue.Load() {
		return
	}
	x.copies, x.deliveries = 1, int(k.deliveries)
	if k.named || m.delayAfter != nil { // in order another message may be the same
		x.failed = k.Failed
	}
	if x.outcome != nil && m.texts+texts(x.outcome) > maxTexts {
		x.outcome = nil
	}
	if full := m.full(x); full && m.now()-m.swept > time.Second || m.now()-m.swept > time.Minute {
		m.sweep()
	}
	if m.full(x) && !k.reserved {
		return
	}
	e := m.entry(k.id)
	if m.count(x, 1); x.outcome != nil {
		e.done = append(e.done, x)
		return
	}
	for i, equal := range e.post {
		if equal.deliveries == x.deliveries {
			e.post[i] = expected{
				failed: min(x.failed, equal.failed), deliveries: x.deliveries, copies: equal.copies + 1,
				rejected: min(x.rejected, equal.rejected), due: max(x.due, equal.due),
			}
			return
		}
	}
	e.post = append(e.post, x)
}

func (m *Memory) full(x expected) bool {
	if x.outcome != nil {
		return m.outcomes >= m.limit
	}
	return m.posts >= m.limit
}

// count counts n copies like x more.
func (m *Memory) count(x expected, n int) {
	if x.outcome == nil {
		m.posts += n
		return
	}
	m.outcomes += n
	m.texts += n * texts(x.outcome)
}

// sweep forgets what must have gone elsewhere.
func (m *Memory) sweep() {
	m.swept = m.now()
	for id, e := range m.messages {
		for _, all := range []*[]expected{&e.post, &e.done} {
			*all = slices.DeleteFunc(*all, func(x expected) bool {
				old := m.swept-x.due > keptFor
				if old {
					m.count(x, -x.copies)
				}
				return old
			})
		}
		m.tidy(id)
	}
}

func (m *Memory) entry(id uint64) *entry {
	e := m.messages[id]
	if e == nil {
		e = &entry{}
		m.messages[id] = e
	}
	return e
}

// tidy forgets an entry that says nothing.
func (m *Memory) tidy(id uint64) {
	if e := m.messages[id]; e != nil && e.out+len(e.post)+len(e.done) == 0 {
		delete(m.messages, id)
	}
}

// texts returns how many bytes of the app's answer an outcome keeps.
func texts(o *message.Outcome) int {
	n := len(o.Answer)
	if p := o.Problem; p != nil {
		n += len(p.Type) + len(p.Title) + len(p.Detail)
	}
	return n
}
