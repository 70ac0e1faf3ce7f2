package consume

import (
	"hash/maphash"
	"sync"
	"time"

	"sidecar/internal/message"
	"sidecar/internal/topology"
)

const (
	// maxKnown bounds the messages whose attempts are remembered, and with it the memory: about 5 MB. The attempts of more
	// are not counted until there is room: they have more attempts then, never fewer.
	maxKnown = 1 << 16

	// knownFor is how long after its time a message is remembered that did not come back, because another replica has it.
	knownFor = 10 * time.Minute

	// maxLost is how many lost connections an attempt is remembered over.
	maxLost = 100

	// atOnce is within which a message is back that the broker does not delay at all.
	atOnce = 100 * time.Millisecond
)

// attempts are the failed attempts of messages that wait in a queue that delays them itself. A reject cannot write them
// into the message, and the broker counts lost connections along with rejects: its count is only a bound. So attempts
// made by another process are not counted, and a restart gives attempts back. None is ever counted that was not made.
//
// A message is recognised by what it holds and by the count that the broker wrote to it. Of messages that are equal in
// all of it, the numbers are kept as well.
type attempts struct {
	delayAfter func(deliveries int) time.Duration
	undelayed  func()
	seed       maphash.Seed

	mu    sync.Mutex
	known map[attempted]attempt
	swept time.Time
}

// attempted is a message, as the broker delivers it next.
type attempted struct {
	message    uint64
	deliveries int
}

type attempt struct {
	failed, copies int
	rejected       time.Time // zero: given back
	due            time.Time // the broker delivers it from then on
}

func newAttempts(delayAfter func(int) time.Duration, undelayed func()) *attempts {
	return &attempts{
		delayAfter: delayAfter, undelayed: undelayed, seed: maphash.MakeSeed(), known: map[attempted]attempt{},
	}
}

// take sets the failed attempts of a message that was delivered, and forgets them: ended remembers them again.
func (a *attempts) take(r *record) {
	deliveries := message.Deliveries(r.m.Headers)
	if deliveries == 0 || !r.delivery.Redelivered { // of a new message its publisher has written the count
		return
	}
	r.known = attempted{a.identify(&r.m), deliveries}
	e, exact := a.remove(r.known)
	r.failed = e.failed
	if exact && time.Since(e.rejected) < min(atOnce, e.due.Sub(e.rejected)/2) {
		a.undelayed()
	}
}

// remove takes out what is known of a message. Without a match it is what was known before connections were lost, or
// before another replica had the message.
func (a *attempts) remove(key attempted) (e attempt, exact bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	found := false
	for n := 0; n <= maxLost && key.deliveries >= 0 && !found; n++ {
		if e, found = a.known[key]; !found {
			key.deliveries--
		}
		exact = n == 0
	}
	if !found {
		return e, false
	}
	if e.copies--; e.copies == 0 {
		delete(a.known, key)
	} else {
		a.known[key] = e
	}
	return e, exact
}

// ended remembers the attempts of a message that returns to the queue. lost says that its session has ended, which the
// broker counts.
func (a *attempts) ended(r *record, by topology.Final, lost bool) {
	if a == nil || by == topology.FinalAck || by != topology.FinalDelay && r.failed == 0 {
		return
	}
	key := r.known
	if key.deliveries == 0 {
		key.message = a.identify(&r.m)
	}
	e := attempt{failed: r.failed, copies: 1, due: time.Now()}
	switch {
	case by == topology.FinalDelay:
		e.failed++
		e.rejected, e.due = e.due, e.due.Add(a.delayAfter(key.deliveries))
		key.deliveries++
	case lost:
		key.deliveries++
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if twin, ok := a.known[key]; ok {
		e.failed, e.copies = min(e.failed, twin.failed), twin.copies+1
	} else if !a.room() {
		return
	}
	a.known[key] = e
}

// room reports whether one more message can be remembered, and forgets those that must have gone elsewhere.
func (a *attempts) room() bool {
	if now := time.Now(); len(a.known) >= maxKnown && now.Sub(a.swept) > time.Second {
		a.swept = now
		for key, e := range a.known {
			if now.Sub(e.due) > knownFor {
				delete(a.known, key)
			}
		}
	}
	return len(a.known) < maxKnown
}

// identify is a hash of what a delivery does not change.
func (a *attempts) identify(m *message.Message) uint64 {
	var h maphash.Hash
	h.SetSeed(a.seed)
	for _, s := range []string{m.MessageID, m.CorrelationID, m.Type, m.Exchange, m.RoutingKey} {
		_, _ = h.WriteString(s)
		_ = h.WriteByte(0)
	}
	maphash.WriteComparable(&h, m.Timestamp.Unix())
	_, _ = h.Write(m.Body)
	return h.Sum64()
}

// waiting is how many messages this process has rejected that the broker still delays.
func (a *attempts) waiting() (n int) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.known {
		if e.due.After(now) {
			n += e.copies
		}
	}
	return n
}
