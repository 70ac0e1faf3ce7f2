package deadletter

import (
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

// TestHoldsMessagesForABoundedTime: an operation that takes long ends by itself before the broker ends it, with
// everything in its place, and the same again goes on where it was.
func TestHoldsMessagesForABoundedTime(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig, _ string) {
		list := r.numbered(60)
		r.park(list...)
		slow := r.another()
		slow.hold = 250 * time.Millisecond
		p, err := slow.Redrive(t.Context(), Redrive{Rate: 20}, nil)
		if !errors.Is(err, errHeld) || !errors.Is(err, ErrStopped) || p.Done == 0 || p.Done == 60 {
			t.Errorf("%+v, %v", p, err)
		}
		if again := r.redrive(Redrive{}); again.Done != 60-p.Done || again.Total != again.Done {
			t.Errorf("%+v after %+v", again, p)
		}
		r.holds(r.plan.Queue, list)

		r.park(list...)
		defer r.settling(func(int, *amqp.Delivery) *message.VerdictReply { return nil })()
		if p, err = slow.Redrive(t.Context(), Redrive{Canary: 2}, nil); !errors.Is(err, errHeld) || p.Done != 2 {
			t.Errorf("without verdicts: %+v, %v", p, err)
		}
		r.kept(list[2:])
	}, "classic", "quorum with 20")
}
