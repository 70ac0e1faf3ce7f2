package consume

import (
	"hash/maphash"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// native are the settings of a queue that delays retries itself, each message 300 ms three times.
var native = settings{native: true, maxRetries: 3, retryDelay: 300 * time.Millisecond}

func TestQueueThatDelaysCountsEachAttempt(t *testing.T) {
	t.Parallel()
	var l ledger
	r := start(t, l.answers(func(m *message.Message) message.Outcome {
		if n := len(l.of(m.MessageID)); m.MessageID == "early" && (n == 2 || n == 3) {
			return answer(425)
		}
		return answer(409)
	}), native)
	r.publish("a", "early")
	const equal = 6
	for range equal {
		brokertest.Publish(t, r.ch, "", r.plan.Queue, amqp.Publishing{Body: []byte("{}")})
	}
	forged := amqp.Publishing{MessageId: "forged", Headers: amqp.Table{message.HeaderDeliveryCount: int64(1<<31 - 1)}}
	brokertest.Publish(t, r.ch, "", r.plan.Queue, forged)
	// The third attempt, as another consumer counts them: a reject replaces that by the broker's own count.
	other := amqp.Publishing{MessageId: "other", Headers: amqp.Table{message.HeaderDeliveryCount: "3"}}
	brokertest.Publish(t, r.ch, "", r.plan.Queue, other)
	for range equal + 4 {
		if d := r.parked(); d.Headers["x-final-reason"] != "max_retries" || d.Headers["x-final-retry-count"] != int32(3) {
			t.Errorf("%q was parked with %v", d.MessageId, d.Headers)
		}
	}
	r.holds(r.plan.Queue, 0)
	same(t, &l, "early", []string{"early#0", "early#1", "early#1", "early#1", "early#2", "early#3"})
	same(t, &l, "other", []string{"other#2", "other#3"}) // of another consumer
	for _, id := range []string{"a", "forged"} {
		same(t, &l, id, []string{id + "#0", id + "#1", id + "#2", id + "#3"})
	}
	all := l.of("")
	slices.Sort(all)
	if want := slices.Concat(slices.Repeat([]string{"#0"}, equal), slices.Repeat([]string{"#1"}, equal), slices.Repeat([]string{"#2"}, equal),
		slices.Repeat([]string{"#3"}, equal)); !slices.Equal(all, want) {
		t.Errorf("equal messages: attempts %v", all)
	}
	if n := r.attempts.waiting(); n != 0 || r.undelayed.Load() != 0 {
		t.Errorf("%d still wait, and %d times nothing delayed", n, r.undelayed.Load())
	}
}

var seed = maphash.MakeSeed()

// identity is that of a message with nothing but an id.
func identity(id string) uint64 { return maphash.String(seed, id) | 1 }

// returning is a message as a worker has it at one delivery, with a count of the broker.
func returning(a *attempts, id string, deliveries int) *record {
	r := &record{m: message.Message{MessageID: id, Redelivered: deliveries > 0}}
	if deliveries > 0 {
		r.m.Headers = amqp.Table{message.HeaderDeliveryCount: int64(deliveries)}
	}
	r.id = identity(id)
	a.take(r)
	r.m.RetryCount = max(r.m.RetryCount, r.failed) // as record.read does
	return r
}

// TestEqualMessagesAreNotTakenForOneThatIsBack: each waits its time, and the next one is rejected shortly before.
func TestEqualMessagesAreNotTakenForOneThatIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempts(func(int) time.Duration { return time.Second }, func() { t.Error("nothing delays?") })
		for range 5 {
			time.Sleep(900 * time.Millisecond)
			a.ended(returning(a, "", 0), topology.FinalDelay, false)
			time.Sleep(90 * time.Millisecond)
			a.ended(returning(a, "", 0), topology.FinalDelay, false)
			time.Sleep(10 * time.Millisecond)
			a.ended(returning(a, "", 1), topology.FinalAck, false)
		}
		// The attempt of the first was lost with its connection, and it returns when the second is rejected.
		a.ended(returning(a, "lost", 0), topology.FinalRequeue, true)
		a.ended(returning(a, "lost", 0), topology.FinalDelay, false)
		a.ended(returning(a, "lost", 1), topology.FinalDelay, false)
	})
}

// TestReplicasWithoutDelay: two replicas get the message in turn.
func TestReplicasWithoutDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reports := 0
		a := newAttempts(func(int) time.Duration { return time.Second }, func() { reports++ })
		time.Sleep(time.Second)
		for n := 0; n < 16; n += 2 {
			if n == 12 {
				time.Sleep(time.Second) // only this once it is delayed: after it three in a row are not reached
			}
			a.ended(returning(a, "m", n), topology.FinalDelay, false)
		}
		if reports != 1 {
			t.Errorf("%d reports", reports)
		}
		a = newAttempts(func(int) time.Duration { return atOnce }, func() { t.Error("a short delay is one, too") })
		for n := range 6 {
			a.ended(returning(a, "m", n), topology.FinalDelay, false)
			time.Sleep(atOnce - time.Millisecond)
		}
	})
}

func TestMessagesThatWentElsewhereAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempts(func(int) time.Duration { return time.Second }, func() {})
		a.limit = 3
		reject := func(id string) { a.ended(returning(a, id, 0), topology.FinalDelay, false) }
		for _, id := range []string{"a", "b", "c", "no room"} {
			reject(id)
		}
		if r := returning(a, "no room", 1); r.failed != 0 {
			t.Errorf("%d attempts of a message without a place", r.failed)
		}
		time.Sleep(999 * time.Millisecond)
		if n := a.waiting(); n != 3 {
			t.Errorf("%d wait", n)
		}
		time.Sleep(time.Millisecond)
		if n := a.waiting(); n != 0 {
			t.Errorf("%d wait after their time", n)
		}
		time.Sleep(knownFor - time.Second)
		reject("still no room")
		kept := returning(a, "a", 1)
		time.Sleep(2 * time.Second)
		reject("new")
		if _, ok := a.known[attempted{identity("new"), 1}]; !ok || len(a.known) != 1 {
			t.Errorf("known: %v", a.known)
		}
		for _, by := range []topology.Final{topology.FinalRequeue, topology.FinalAck} { // lost with the connection
			a.ended(kept, by, true)
			if kept = returning(a, "a", 2); kept.failed != 1 {
				t.Errorf("%d attempts of a message that returned", kept.failed)
			}
		}
		if a.ended(kept, topology.FinalAck, false); a.taken != 0 || len(a.known) != 1 {
			t.Errorf("%d places are kept, %d messages known", a.taken, len(a.known))
		}
	})
}

// TestDeletedQueueIsForgotten: with what waits in it and with what is in flight, which ends later.
func TestDeletedQueueIsForgotten(t *testing.T) {
	t.Parallel()
	a := newAttempts(func(int) time.Duration { return time.Hour }, func() { t.Error("nothing delays?") })
	for _, id := range []string{"waits", "back", "known"} {
		a.ended(returning(a, id, 0), topology.FinalDelay, false)
	}
	first, known := returning(a, "first", 0), returning(a, "known", 1)
	if n := a.forget(); n != 2 || a.waiting() != 0 {
		t.Errorf("%d waited, %d wait", n, a.waiting())
	}
	a.ended(first, topology.FinalDelay, true)
	a.ended(known, topology.FinalDelay, true)
	if r := returning(a, "known", 2); r.failed != 0 || a.waiting() != 0 || a.taken != 0 || len(a.known) != 0 {
		t.Errorf("%d failed, %d wait, %d taken", r.failed, a.waiting(), a.taken)
	}
	a.ended(returning(a, "new", 0), topology.FinalDelay, false)
	if n := a.waiting(); n != 1 {
		t.Errorf("%d wait in the new queue", n)
	}
}

// TestForgedCountOfAMessageThatWasGivenBack: the broker leaves a publisher's count alone until the first reject, so it
// is there at a redelivery, too.
func TestForgedCountOfAMessageThatWasGivenBack(t *testing.T) {
	t.Parallel()
	a := newAttempts(func(int) time.Duration { return time.Second }, func() { t.Error("not delayed") })
	delivered := func(count int64) *record {
		r := &record{id: 7, m: message.Message{Redelivered: true, Headers: amqp.Table{message.HeaderDeliveryCount: count}}}
		a.take(r)
		return r
	}
	a.ended(delivered(math.MaxInt64), topology.FinalDelay, false)
	if r := delivered(1); r.failed != 1 {
		t.Errorf("%d failed attempts, want 1", r.failed)
	}
}

// TestLowerCountOfEqualMessages: where equal messages have one count of the broker, each takes the lower number of attempts.
func TestLowerCountOfEqualMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempts(func(int) time.Duration { return time.Second }, func() {})
		a.ended(returning(a, "", 1), topology.FinalDelay, false) // its first delivery was lost with the connection
		a.ended(returning(a, "", 0), topology.FinalDelay, false)
		time.Sleep(time.Second)
		a.ended(returning(a, "", 1), topology.FinalDelay, false)
		time.Sleep(3 * time.Second)
		if x, y := returning(a, "", 2), returning(a, "", 2); x.failed > 1 || y.failed > 1 {
			t.Errorf("%d and %d attempts; one has had 1", x.failed, y.failed)
		}
	})
}

// TestAttemptsBeforeACutCount: a message fails once, and its second attempt outlives the connection and fails, too. It has
// four attempts in all.
func TestAttemptsBeforeACutCount(t *testing.T) {
	t.Parallel()
	var l ledger
	began, goOn := make(chan struct{}), make(chan struct{})
	r := start(t, l.answers(func(m *message.Message) message.Outcome {
		if len(l.of(m.MessageID)) == 2 {
			close(began)
			<-goOn
		}
		return answer(409)
	}), native)
	r.publish("a")
	<-began
	received := r.Received()
	r.cut()
	r.eventually("the copy", func() bool { return r.Received() > received })
	close(goOn)
	r.parked()
	same(t, &l, "a", []string{"a#0", "a#1", "a#2", "a#3"})
}
