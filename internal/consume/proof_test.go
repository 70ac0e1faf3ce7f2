package consume

import (
	"testing"
	"time"

	"sidecar/internal/message"
)

// withoutBinding publishes a message whose retry returns, because nothing leads to the wait queue, and then binds it
// again.
func (r *rig) withoutBinding(id string) {
	r.t.Helper()
	wait := r.plan.Waits[0]
	if err := r.ch.QueueUnbind(wait.Queue, wait.Key, wait.Exchange, nil); err != nil {
		r.t.Fatal(err)
	}
	r.publish(id)
	r.eventually("the retry returns to us", func() bool { return r.unroutable.Load() > 0 })
	if err := r.ch.QueueBind(wait.Queue, wait.Key, wait.Exchange, false, nil); err != nil {
		r.t.Fatal(err)
	}
}

// TestUnprovenBindingIsProvenByAPublish: while the binding is not proven, the first retry must not be a reject.
func TestUnprovenBindingIsProvenByAPublish(t *testing.T) {
	t.Parallel()
	var s seen
	r := start(t, s.answers(500, 500, 500), settings{concurrency: 1, prefetch: 1, unproven: true})
	r.eventually("active", func() bool { return r.Active() })
	r.withoutBinding("a")
	r.acked(1)
	if got := r.count(message.Retry, message.ReasonServerError); got != 3 || s.Of("a") != 4 {
		t.Errorf("%d retries and %d attempts, want 3 and 4: nothing lost, nothing counted twice", got, s.Of("a"))
	}
}

// TestProofIsRenewed: a binding that was there can be deleted, so a proof counts for a while only, and not at all where
// nothing checks the binding again.
func TestProofIsRenewed(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]settings{"unproven": {unproven: true, proofLasts: time.Millisecond}, "unverified": {unverified: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.concurrency, o.prefetch = 1, 1
			var s seen
			r := start(t, s.answers(500), o)
			r.publish("a")
			r.acked(1) // its retry got through
			r.withoutBinding("b")
			r.acked(2)
			if s.Of("b") != 2 {
				t.Errorf("%d attempts, want 2", s.Of("b"))
			}
		})
	}
}
