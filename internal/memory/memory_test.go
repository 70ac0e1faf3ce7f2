package memory

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// counted is a message as the broker delivers it when it has counted so many deliveries before.
func counted(id string, deliveries int64) *broker.Delivery {
	d := delivered(id, deliveries > 0)
	if deliveries > 0 {
		d.Headers = amqp.Table{message.HeaderDeliveryCount: deliveries}
	}
	return d
}

// queue is a queue that delays rejected messages itself.
type queue struct {
	*Memory
	session *Session
}

func newQueue(delay time.Duration, undelayed func()) queue {
	m := New(func(int) time.Duration { return delay }, undelayed)
	return queue{m, m.Session(10)}
}

func never(t *testing.T) func() { return func() { t.Error("nothing delays?") } }

// seen is a delivery whose attempt begins.
func (q queue) seen(id string, deliveries int64) Known {
	k := q.Seen(counted(id, deliveries))
	q.session.Begin(&k)
	return k
}

// reject ends a delivery whose attempt failed.
func (q queue) reject(k Known) {
	k.Fail(k.Failed)
	q.session.Returns(k, topology.FinalDelay, nil)
}

func (q queue) wait(t *testing.T, want int) {
	t.Helper()
	if n, ok := q.Waiting(); n != want || !ok {
		t.Errorf("%d wait, want %d", n, want)
	}
}

// TestEqualMessagesAreNotTakenForOneThatIsBack: each waits its time, and the next one is rejected shortly before.
func TestEqualMessagesAreNotTakenForOneThatIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(time.Second, never(t))
		for range 5 {
			time.Sleep(900 * time.Millisecond)
			q.reject(q.seen("", 0))
			time.Sleep(90 * time.Millisecond)
			q.reject(q.seen("", 0))
			time.Sleep(10 * time.Millisecond)
			q.session.Ended(q.seen("", 1), acked, nil)
		}
		// The attempt of the first was lost with its connection, and it returns when the second is rejected.
		q.session.Returns(q.seen("lost", 0), topology.FinalRequeue, nil)
		q.reject(q.seen("lost", 0))
		q.reject(q.seen("lost", 1))
	})
}

// TestReplicasWithoutDelay: two replicas get the message in turn.
func TestReplicasWithoutDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reports := 0
		q := newQueue(time.Second, func() { reports++ })
		time.Sleep(time.Second)
		for n := int64(0); n < 16; n += 2 {
			if n == 12 {
				time.Sleep(time.Second) // only this once it is delayed: after it three in a row are not reached
			}
			q.reject(q.seen("m", n))
		}
		if reports != 1 {
			t.Errorf("%d reports", reports)
		}
		q = newQueue(atOnce, never(t)) // a short delay is one, too
		for n := range int64(6) {
			q.reject(q.seen("m", n))
			time.Sleep(atOnce - time.Millisecond)
		}
	})
}

// TestMessagesThatWentElsewhereAreForgotten: they make room. What has a place keeps it while it is in flight.
func TestMessagesThatWentElsewhereAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(time.Second, never(t))
		q.limit = 3
		for _, id := range []string{"a", "b", "c", "no room"} {
			q.reject(q.seen(id, 0))
		}
		if k := q.Seen(counted("no room", 1)); k.Failed != 0 {
			t.Errorf("%d attempts of a message without a place", k.Failed)
		}
		time.Sleep(999 * time.Millisecond)
		q.wait(t, 3)
		time.Sleep(time.Millisecond)
		q.wait(t, 0)
		kept := q.seen("a", 1)
		q.reject(q.seen("d", 0))
		for deliveries := int64(2); deliveries < 4; deliveries++ { // lost with the connection
			q.session.Ended(kept, nil, errLost)
			if kept = q.seen("a", deliveries); kept.Failed != 1 {
				t.Errorf("%d attempts of a message that returned", kept.Failed)
			}
		}
		q.session.Ended(kept, nil, nil)
		if k := q.Seen(counted("a", 4)); k.Failed != 0 {
			t.Errorf("%d attempts of a message that was acked", k.Failed)
		}
		time.Sleep(keptFor + 2*time.Second)
		if q.reject(q.seen("new", 0)); q.posts != 1 || len(q.messages) != 1 {
			t.Errorf("%d copies of %d messages are expected", q.posts, len(q.messages))
		}
	})
}

// TestDeletedQueueIsForgotten: with what waits in it and with what is in flight, which ends later.
func TestDeletedQueueIsForgotten(t *testing.T) {
	t.Parallel()
	q := newQueue(time.Hour, never(t))
	for _, id := range []string{"waits", "back", "known"} {
		q.reject(q.seen(id, 0))
	}
	first, known := q.seen("first", 0), q.seen("known", 1)
	if n, ok := q.Forget(); n != 2 || !ok {
		t.Errorf("%d waited, want 2", n)
	}
	q.wait(t, 0)
	q.reject(first)
	q.reject(known)
	if k := q.seen("known", 2); k.Failed != 0 || q.posts != 0 || len(q.messages) != 0 {
		t.Errorf("%d failed; %d copies of %d messages", k.Failed, q.posts, len(q.messages))
	}
	q.reject(q.seen("new", 0))
	q.wait(t, 1)
}

// TestNoQueueThatDelays: only such a queue is forgotten.
func TestNoQueueThatDelays(t *testing.T) {
	t.Parallel()
	m := New(nil, nil)
	m.Returned(m.Seen(delivered("a", false)))
	_, waits := m.Waiting()
	if _, forgot := m.Forget(); waits || forgot || m.posts != 1 {
		t.Errorf("waits %v, forgot %v, %d copies", waits, forgot, m.posts)
	}
}

// TestForgedCountOfAMessageThatWasGivenBack: the broker leaves a publisher's count alone until the first reject, so it
// is there at a redelivery, too.
func TestForgedCountOfAMessageThatWasGivenBack(t *testing.T) {
	t.Parallel()
	q := newQueue(time.Second, never(t))
	q.reject(q.seen("m", math.MaxInt64))
	if k := q.seen("m", 1); k.Failed != 1 {
		t.Errorf("%d failed attempts, want 1", k.Failed)
	}
}

// TestLowerCountOfEqualMessages: where equal messages have one count of the broker, each takes the lower number of attempts.
func TestLowerCountOfEqualMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(time.Second, never(t))
		q.reject(q.seen("", 1)) // its first delivery was lost with the connection
		q.reject(q.seen("", 0))
		time.Sleep(time.Second)
		q.reject(q.seen("", 1))
		time.Sleep(3 * time.Second)
		if x, y := q.seen("", 2), q.seen("", 2); x.Failed > 1 || y.Failed > 1 {
			t.Errorf("%d and %d attempts; one has had 1", x.Failed, y.Failed)
		}
	})
}

// TestPlaceInOrder: a message that returns with its channel is due as before. One without an id may be another one.
func TestPlaceInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for id, want := range map[string]int{"a": 2, "": 0} {
			m := New(nil, nil)
			k := m.Seen(delivered(id, false))
			k.Failed, k.Due = 2, time.Now().Add(time.Minute)
			m.Returned(k)
			if again := m.Seen(delivered(id, true)); again.Failed != want || !again.Due.Equal(k.Due) {
				t.Errorf("%q: %d attempts, due %v; want %d, %v", id, again.Failed, again.Due, want, k.Due)
			}
		}
	})
}

// expect makes a copy with an outcome known, or one without.
func (m *Memory) remember(id uint64, o *message.Outcome) {
	m.returned(&Known{key: key{id: id, named: true, seen: true}}, o)
}

// knows reports whether the outcome of a copy is known, which is delivered now, or will be.
func (m *Memory) knows(id uint64) bool {
	k := m.Seen(&broker.Delivery{Identity: id, Delivery: amqp.Delivery{Redelivered: true}})
	return k.Outcome != nil || k.Wait != nil
}

// TestTextsAreBounded: outcomes whose texts find no room are not kept, and those that end make room.
func TestTextsAreBounded(t *testing.T) {
	t.Parallel()
	m := New(nil, nil)
	o := &message.Outcome{Status: 500, Answer: strings.Repeat("a", maxTexts/4), Problem: &message.Problem{Title: "t"}}
	for id := range uint64(4) {
		m.remember(1+id, o)
	}
	m.remember(5, acked)
	for id, want := range map[uint64]bool{1: true, 2: true, 3: true, 4: false, 5: true} {
		if known := m.knows(id); known != want {
			t.Errorf("message %d is known: %v", id, known)
		}
	}
	if m.texts != 0 || m.outcomes != 0 || m.posts != 0 || len(m.messages) != 0 {
		t.Errorf("%d bytes, %d and %d copies are left", m.texts, m.outcomes, m.posts)
	}
}

// TestExpectedCopiesAreBounded: in time, and in number.
func TestExpectedCopiesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := New(nil, nil)
		m.remember(1, acked)
		m.remember(2, acked)
		const long = 3 * maxCopies // its attempt goes on
		s := m.Session(1)
		running := m.Seen(&broker.Delivery{Identity: long})
		s.Begin(&running)
		s.Lose(1)
		time.Sleep(keptFor)
		if !m.knows(1) {
			t.Error("forgotten too early")
		}
		time.Sleep(time.Second)
		if m.knows(2) {
			t.Error("not forgotten")
		}
		for id := range uint64(maxCopies + 2) {
			m.remember(10+id, nil)
			m.remember(10+id, &message.Outcome{Answer: "text"})
		}
		if m.posts != maxCopies || m.outcomes != maxCopies {
			t.Errorf("%d and %d copies are expected, want %d of each", m.posts, m.outcomes, maxCopies)
		}
		if !m.knows(long) {
			t.Error("forgotten while its attempt goes on")
		}
		s.Ended(running, nil, nil)
		time.Sleep(keptFor + time.Second)
		if m.remember(1, acked); m.outcomes != 1 || m.posts != 0 || m.texts != 0 || len(m.messages) != 1 {
			t.Errorf("%d and %d copies of %d messages are expected, with %d bytes", m.outcomes, m.posts, len(m.messages), m.texts)
		}
	})
}

// inFlight is a session with attempts on messages of those ids.
func inFlight(m *Memory, prefetch int, ids ...uint64) (s *Session, known map[uint64]Known) {
	s, known = m.Session(prefetch), map[uint64]Known{}
	for _, id := range ids {
		d := &broker.Delivery{Identity: id}
		d.MessageId = "named"
		k := m.Seen(d)
		s.Begin(&k)
		known[id] = k
	}
	return s, known
}

// TestAWindowOfItsOwn: messages of an earlier registration take nothing of the window, so that many that came later
// prove nothing about their acks; the answer to the registration proves those sent before. An ack that is sent behind the
// loss has not arrived, and settles no copy if its message has no id: another message may be equal.
func TestAWindowOfItsOwn(t *testing.T) {
	t.Parallel()
	m := New(nil, nil)
	s, known := inFlight(m, 2, 1, 2, 3, 4, 5)
	settle := func(id uint64) { s.Ended(known[id], acked, nil) }
	s.Registering(0)()
	settle(1)
	s.Registering(3)()
	settle(2)
	settle(3)
	s.Lose(5)
	s.Lose(5)
	settle(4)
	unnamed := known[5]
	unnamed.named = false
	s.Ended(unnamed, acked, nil)
	for id, want := range map[uint64]bool{1: false, 2: true, 3: true, 4: true, 5: false} {
		if m.knows(id) != want || m.knows(id) {
			t.Errorf("the outcome of message %d is not known once, as wanted: %v", id, want)
		}
	}
}

// TestAnUnansweredRegistration: a link that is cut or frozen during the registration proves nothing about the acks sent
// before it. What is sent while the consumer still registers has not arrived when the session is lost.
func TestAnUnansweredRegistration(t *testing.T) {
	t.Parallel()
	for _, answers := range []bool{false, true} {
		m := New(nil, nil)
		s, known := inFlight(m, 4, 1)
		s.Registering(0)()
		if !answers {
			s.Ended(known[1], acked, nil)
		}
		answered := s.Registering(1)
		if answers {
			s.Ended(known[1], acked, nil)
			answered()
		}
		if s.Lose(1); !m.knows(1) {
			t.Errorf("answered %v: no outcome for the copy", answers)
		}
	}
}
