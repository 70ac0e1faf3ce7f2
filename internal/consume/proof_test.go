package consume

import (
	"context"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
)

// withoutBinding publishes a message whose retry comes back, because nothing leads to the wait queue, and then binds it again.
func (r *rig) withoutBinding(id string) {
	r.t.Helper()
	ch, wait := brokertest.Channel(r.t, r.url), r.plan.Waits[0]
	if err := ch.QueueUnbind(wait.Queue, wait.Key, wait.Exchange, nil); err != nil {
		r.t.Fatal(err)
	}
	r.publish(id)
	r.eventually("the retry comes back to us", func() bool { return r.unroutable.Load() > 0 })
	if err := ch.QueueBind(wait.Queue, wait.Key, wait.Exchange, false, nil); err != nil {
		r.t.Fatal(err)
	}
}

// TestUnprovenBindingIsProvenByAPublish: with nobody to vouch for the binding, the first retry must not be a reject.
func TestUnprovenBindingIsProvenByAPublish(t *testing.T) {
	t.Parallel()
	var s seen
	r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
		if s.add(m.MessageID) <= 3 {
			return answer(500)
		}
		return answer(200)
	}), settings{concurrency: 1, prefetch: 1, unproven: true})
	r.eventually("active", func() bool { return r.Active() })
	r.withoutBinding("a")
	r.eventually("the ack", func() bool { return r.count(message.Ack, message.ReasonSuccess) == 1 })
	if got := r.count(message.Retry, message.ReasonServerError); got != 3 || s.of("a") != 4 {
		t.Errorf("%d retries and %d attempts, want 3 and 4: nothing lost, nothing counted twice", got, s.of("a"))
	}
}

// TestProofIsRenewed: a binding that was there can be deleted, so a proof counts for a while only.
func TestProofIsRenewed(t *testing.T) {
	t.Parallel()
	var s seen
	r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
		if s.add(m.MessageID) == 1 {
			return answer(500)
		}
		return answer(200)
	}), settings{concurrency: 1, prefetch: 1, unproven: true, proofLasts: time.Millisecond})
	r.publish("a")
	r.eventually("the proof", func() bool { return r.count(message.Ack, message.ReasonSuccess) == 1 })
	r.withoutBinding("b")
	r.eventually("the ack", func() bool { return r.count(message.Ack, message.ReasonSuccess) == 2 })
}

// TestUnverifiedNeverRejects: where nobody looks whether the binding stays, every retry is a publish, which comes back
// when it has gone.
func TestUnverifiedNeverRejects(t *testing.T) {
	t.Parallel()
	var s seen
	r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
		if s.add(m.MessageID) == 1 {
			return answer(500)
		}
		return answer(200)
	}), settings{concurrency: 1, prefetch: 1, unverified: true})
	r.publish("a")
	r.eventually("a retry that got through", func() bool { return r.count(message.Ack, message.ReasonSuccess) == 1 })
	r.withoutBinding("b")
	r.eventually("the ack", func() bool { return r.count(message.Ack, message.ReasonSuccess) == 2 })
	if s.of("b") != 2 {
		t.Errorf("%d attempts, want 2", s.of("b"))
	}
}
