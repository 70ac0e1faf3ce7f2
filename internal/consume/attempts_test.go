package consume

import (
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
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
	if n, _ := r.Waiting(); n != 0 || r.undelayed.Load() != 0 {
		t.Errorf("%d still wait, and %d times nothing delayed", n, r.undelayed.Load())
	}
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
