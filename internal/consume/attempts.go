package consume

import (
	"sync"
	"time"

	"sidecar/internal/message"
	"sidecar/internal/topology"
)

const (
	// maxKnown bounds the messages whose attempts are remembered, and with it the memory: about 6 MB. The attempts of more
	// are not counted until there is room: they have more attempts then, never fewer.
	maxKnown = 1 << 16

	// knownFor is how long after its time a message is remembered that was not delivered again, because another replica
	// has it.
	knownFor = 10 * time.Minute

	// maxDeliveries is more than a message can have before its retries are used up.
	maxDeliveries = 1 << 24

	// maxLost is how many lost connections an attempt is remembered over.
	maxLost = 100

	// atOnce is within which a message is back that the broker does not delay at all.
	atOnce = 100 * time.Millisecond

	// maxAtOnce messages in a row that are back at once are a sign that nothing delays. One may be mistaken for another
	// that is equal and was rejected just now.
	maxAtOnce = 3
)

// attempts are the failed attempts of messages that wait in a queue that delays them itself. A reject cannot write them
// into the message, and the broker counts lost connections along with rejects: its count is only a bound. So attempts
// made by another process are not counted, and a restart gives attempts back.
//
// A message is recognised by what it holds and by the count that the broker wrote to it. Messages that are equal in all
// of it each have their attempts, until a connection is lost: then one can have those of another one.
type attempts struct {
	delayAfter func(deliveries int) time.Duration
	undelayed  func()
	start      time.Time

	mu    sync.Mutex
	limit int // of known and taken together
	known map[attempted]attempt
	taken int // messages that were known and have been delivered: their places are kept for them
	early int // messages in a row that were back at once
	swept time.Duration
	queue int // how often the queue was deleted: a message of an earlier queue does not return
}

// attempted is a message, as the broker delivers it next.
type attempted struct {
	message    uint64
	deliveries int
}

// attempt holds times since attempts.start.
type attempt struct {
	failed, copies int32
	rejected       time.Duration // of the oldest copy; 0: one was given back
	due            time.Duration // the broker delivers it from then on
}

func newAttempts(delayAfter func(int) time.Duration, undelayed func()) *attempts {
	return &attempts{
		delayAfter: delayAfter, undelayed: undelayed, start: time.Now(), limit: maxKnown,
		known: map[attempted]attempt{},
	}
}

// take sets the failed attempts of a message that was delivered, and forgets them: ended remembers them again.
func (a *attempts) take(r *record) {
	a.mu.Lock()
	undelayed := a.remove(r)
	a.mu.Unlock()
	if undelayed {
		a.undelayed()
	}
}

// remove takes out what is known of a message. Without a match it is what was known before connections were lost, or
// before another replica had the message. mu is locked.
func (a *attempts) remove(r *record) (undelayed bool) {
	r.queue = a.queue
	deliveries := message.Deliveries(r.m.Headers)
	// A count at the first delivery is a publisher's. So is one that no broker reaches: it is still there when the message
	// was given back before its first attempt.
	if deliveries == 0 || deliveries > maxDeliveries || !r.m.Redelivered {
		return false
	}
	r.known = attempted{r.id, deliveries}
	key := r.known
	for n := 0; n <= maxLost && key.deliveries >= 0; n++ {
		if e, ok := a.known[key]; ok {
			a.taken++
			undelayed = a.backAtOnce(e)
			if e.copies--; e.copies == 0 {
				delete(a.known, key)
			} else {
				a.known[key] = e
			}
			r.failed = int(e.failed)
			return undelayed
		}
		key.deliveries--
	}
	return false
}

// backAtOnce reports whether it was shown just now that the broker delays nothing.
func (a *attempts) backAtOnce(e attempt) bool {
	switch {
	case e.rejected == 0:
		return false
	case time.Since(a.start)-e.rejected >= min(atOnce, (e.due-e.rejected)/2):
		a.early = 0
		return false
	}
	a.early++
	return a.early%maxAtOnce == 0
}

// ended remembers the attempts of a message that returns to the queue. lost says that its session has ended: then it
// returns also after an ack.
func (a *attempts) ended(r *record, by topology.Final, lost bool) {
	if a == nil || by != topology.FinalDelay && r.failed == 0 {
		return
	}
	key, kept := r.known, r.failed > 0
	if key.deliveries == 0 {
		key.message = r.id
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.queue != a.queue {
		return
	}
	if kept {
		a.taken--
	}
	if by == topology.FinalAck && !lost {
		return
	}
	now := time.Since(a.start)
	e := attempt{failed: int32(r.m.RetryCount), copies: 1, due: now} // #nosec G115 -- message.RetryCount has that bound
	if by == topology.FinalDelay {
		e.failed++
		e.rejected, e.due = now, now+a.delayAfter(key.deliveries)
		key.deliveries++
	}
	switch equal, ok := a.known[key]; {
	case ok:
		e.failed, e.copies, e.rejected = min(e.failed, equal.failed), equal.copies+1, min(e.rejected, equal.rejected)
	case !kept && !a.room(now):
		return
	}
	a.known[key] = e
}

// room reports whether one more message can be remembered, and forgets those that must have gone elsewhere.
func (a *attempts) room(now time.Duration) bool {
	if len(a.known)+a.taken >= a.limit && now-a.swept > time.Second {
		a.swept = now
		for key, e := range a.known {
			if now-e.due > knownFor {
				delete(a.known, key)
			}
		}
	}
	return len(a.known)+a.taken < a.limit
}

// waiting is how many messages this process has rejected that the broker still delays.
func (a *attempts) waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.delayed()
}

// forget forgets all messages, also those in flight: their queue was deleted. It returns what waiting was.
func (a *attempts) forget() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.delayed()
	clear(a.known)
	a.queue, a.taken = a.queue+1, 0
	return n
}

// delayed is waiting, while mu is locked.
func (a *attempts) delayed() (n int) {
	now := time.Since(a.start)
	for _, e := range a.known {
		if e.due > now {
			n += int(e.copies)
		}
	}
	return n
}

// Waiting is how many messages this process has rejected that the service's queue still delays; ok is false where that
// delays none.
func (c *Consumer) Waiting() (n int, ok bool) {
	if c.attempts == nil {
		return 0, false
	}
	return c.attempts.waiting(), true
}

// Forget forgets the messages of the service's queue, which was deleted. It returns what Waiting was.
func (c *Consumer) Forget() (waited int, ok bool) {
	if c.attempts == nil {
		return 0, false
	}
	return c.attempts.forget(), true
}
