package consume

import (
	"testing"

	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// TestPublishedRetryProvesItsWay: where bindings are not declared, a retry is a publish, which returns when the binding
// is missing. The message is not lost, and it is not counted twice.
func TestPublishedRetryProvesItsWay(t *testing.T) {
	t.Parallel()
	var s seen
	r := start(t, s.answers(500, 500, 500), settings{concurrency: 1, prefetch: 1, change: func(p *topology.Plan) { *p = *p.WithoutReject() }})
	r.eventually("active", func() bool { return r.Active() })
	wait := r.plan.Waits[0]
	if err := r.ch.QueueUnbind(wait.Queue, wait.Key, wait.Exchange, nil); err != nil {
		t.Fatal(err)
	}
	r.publish("a")
	r.eventually("the retry returns to us", func() bool { return r.unroutable.Load() > 0 })
	if err := r.ch.QueueBind(wait.Queue, wait.Key, wait.Exchange, false, nil); err != nil {
		t.Fatal(err)
	}
	r.acked(1)
	r.counted(3, message.Retry, message.ReasonServerError)
	if s.Of("a") != 4 {
		t.Errorf("%d attempts, want 4: nothing lost, nothing counted twice", s.Of("a"))
	}
}
