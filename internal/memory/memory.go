// Package memory remembers what one process has seen of the messages that the broker will deliver again: the failed
// attempts that their headers do not say, when the next one is due, and the outcomes of attempts whose settlements may
// have been lost with a session. A message is recognised by broker.Delivery.Identity, a hash of all that it holds.
// Equal messages are copies of one: what is known of one of them may go to another. A message of which nothing is
// known is POSTed.
package memory

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/message"
)

const (
	// keptFor is how long after its time a copy is expected that does not come: its settlement has arrived, or another
	// replica has the message. The broker may take a minute to notice that a connection was lost.
	keptFor = 10 * time.Minute

	// maxCopies bounds the copies that are expected with an outcome, and those without one. What finds no room is POSTed,
	// and its attempts are not counted until there is room: it has more attempts then, never fewer. A copy whose attempts
	// were counted keeps its room while it is delivered, so that there may be as many more as are in flight.
	maxCopies = 1 << 16

	// maxTexts bounds the answers and problems of the outcomes, in bytes. A copy whose texts find no room is POSTed.
	maxTexts = 4 << 20

	// maxDeliveries is more than a message can have before its retries are used up.
	maxDeliveries = 1 << 24

	// atOnce is within which a message is back that the broker does not delay at all.
	atOnce = 100 * time.Millisecond

	// maxAtOnce messages in a row that are back at once are a sign that nothing delays. One may be mistaken for another
	// that is equal and was rejected just now.
	maxAtOnce = 3
)

// Memory is shared by the sessions of one consumer.
type Memory struct {
	delayAfter func(deliveries int) time.Duration // of a queue that delays rejected messages itself; nil: it does not
	undelayed  func()                             // such a queue did not delay
	start      time.Time

	queue atomic.Int32 // how often the queue was deleted: a message of an earlier queue does not return

	mu       sync.Mutex
	messages map[uint64]*entry // by identity
	limit    int               // see maxCopies
	posts    int               // copies that are expected without an outcome
	outcomes int               // and with one
	texts    int               // bytes, see maxTexts
	early    int               // messages in a row that were back at once
	swept    time.Duration     // since start, as all times here
}

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

// Known is what is known of one delivery: at first what the delivery says (Of), then what earlier ones left (Seen),
// which is only here from then on. It ends in one call of Session.Returns, Session.Ended or Memory.Returned, which put
// back what the next delivery needs.
type Known struct {
	Failed  int              // attempts in all, where that is more than the headers say
	Due     time.Time        // of the next attempt; zero: now
	Outcome *message.Outcome // of an earlier delivery: it settles this one, without a POST
	Wait    <-chan struct{}  // closed when Seen may know the outcome of an attempt that is under way; nil: there is none

	key
}

// key is of what message a delivery is, and how far it has come.
type key struct {
	id          uint64
	deliveries  int32 // that the broker has counted, where Failed depends on that
	queue       int32
	redelivered bool
	named       bool // the message has an id: another one is hardly equal
	seen        bool
	reserved    bool // its attempts were counted: there is room for them
	begun       bool // its attempt is counted as under way
}

// Fail counts a failed attempt behind count earlier ones.
func (k *Known) Fail(count int) { k.Failed = count + 1 }

// New returns an empty Memory. delayAfter says how long the queue delays a message that it has delivered so often and
// that is rejected; nil: it does not delay. undelayed is called when it did not.
func New(delayAfter func(deliveries int) time.Duration, undelayed func()) *Memory {
	return &Memory{
		delayAfter: delayAfter, undelayed: undelayed, start: time.Now(), limit: maxCopies, messages: map[uint64]*entry{},
	}
}

// Of returns what a delivery itself says.
func (m *Memory) Of(d *broker.Delivery) Known {
	return Known{key: key{
		id: d.Identity, redelivered: d.Redelivered, named: d.MessageId != "", queue: m.queue.Load(),
	}}
}

// Seen returns what is known of a delivery, whose headers have been decoded, and forgets it. A first delivery has no
// past.
//
// Copies to POST go first: an outcome may be of a message whose ack has arrived, and must not settle a message that the
// app has not seen.
func (m *Memory) Seen(d *broker.Delivery) Known {
	k := m.Of(d)
	k.seen = true
	if !d.Redelivered {
		return k
	}
	// A count at the first delivery is a publisher's. So is one that no broker reaches: it is still there when the message
	// was given back before its first attempt.
	if n := message.Deliveries(d.Headers); m.delayAfter != nil && n <= maxDeliveries {
		k.deliveries = int32(n) // #nosec G115 -- at most maxDeliveries
	}
	if m.look(&k) {
		m.undelayed()
	}
	return k
}

func (m *Memory) look(k *Known) (undelayed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.messages[k.id]
	if e == nil {
		return false
	}
	now := m.now()
	switch x, ok := e.take(now, m.bound(k)); {
	case ok:
		m.count(x, -1)
		k.Failed, k.Outcome, k.reserved = x.failed, x.outcome, x.failed > 0
		if x.due > now {
			k.Due = m.start.Add(x.due)
		}
		undelayed = m.backAtOnce(x, now)
	case e.out > 0:
		if e.over == nil {
			e.over = make(chan struct{})
		}
		k.Wait = e.over
	}
	m.tidy(k.id)
	return undelayed
}

// bound is how many deliveries the copy may have had.
func (m *Memory) bound(k *Known) int {
	if m.delayAfter == nil {
		return math.MaxInt
	}
	return int(k.deliveries)
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

// backAtOnce reports whether it was shown just now that the broker delays nothing.
func (m *Memory) backAtOnce(x expected, now time.Duration) bool {
	switch {
	case x.rejected == 0:
		return false
	case now-x.rejected >= min(atOnce, (x.due-x.rejected)/2):
		m.early = 0
		return false
	}
	m.early++
	return m.early%maxAtOnce == 0
}

// Returned is called for a delivery that returns to the queue without a settlement.
func (m *Memory) Returned(k Known) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.returned(&k, nil)
}

// returned expects the next delivery, which o settles; nil: what settles this one if it was not attempted.
func (m *Memory) returned(k *Known, o *message.Outcome) {
	if o == nil && !k.begun {
		o = k.Outcome
	}
	switch {
	case k.Wait != nil: // nothing was taken for it: the attempt that is under way is still counted
		return
	case !k.seen && k.redelivered && m.messages[k.id] != nil: // a copy is expected already
		return
	}
	m.expect(k, expected{outcome: o, due: max(m.now(), k.Due.Sub(m.start))})
}

// delayed expects a message that was rejected, in a queue that delays it. A reject cannot write the attempt into the
// message, and the broker counts lost connections along with rejects: its count is only a bound. So attempts made by
// another process are not counted, and a restart gives attempts back.
func (m *Memory) delayed(k *Known) {
	now := m.now()
	x := expected{rejected: now, due: now}
	if m.delayAfter != nil {
		x.due += m.delayAfter(int(k.deliveries))
	}
	k.deliveries++
	m.expect(k, x)
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

func (m *Memory) now() time.Duration { return time.Since(m.start) }

// Waiting is how many messages this process has rejected that the queue still delays; ok is false where that delays
// none.
func (m *Memory) Waiting() (n int, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for _, e := range m.messages {
		for _, x := range e.post {
			if x.due > now {
				n += x.copies
			}
		}
	}
	return n, m.delayAfter != nil
}

// Forget forgets all copies, also of what is in flight: their queue was deleted. It returns what Waiting was.
func (m *Memory) Forget() (waited int, ok bool) {
	if waited, ok = m.Waiting(); !ok {
		return 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queue.Add(1)
	for id, e := range m.messages {
		e.post, e.done = nil, nil
		m.tidy(id)
	}
	m.posts, m.outcomes, m.texts = 0, 0, 0
	return waited, true
}

// texts returns how many bytes of the app's answer an outcome keeps.
func texts(o *message.Outcome) int {
	n := len(o.Answer)
	if p := o.Problem; p != nil {
		n += len(p.Type) + len(p.Title) + len(p.Detail)
	}
	return n
}
