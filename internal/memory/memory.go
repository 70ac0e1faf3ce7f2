// Package memory remembers what one process has seen of the messages that the broker will deliver again: the failed
// attempts that their headers do not say, when the next one is due, and the outcomes of attempts whose settlements may
// have been lost with a session. A message is recognised by broker.Delivery.Identity, a hash of all that it holds.
// Equal messages are copies of one: what is known of one of them may go to another. A message of which nothing is
// known is POSTed.
package memory

import (
	"math"
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
