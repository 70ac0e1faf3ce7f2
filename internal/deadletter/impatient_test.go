//go:build nightly

package deadletter

import (
	"errors"
	"slices"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// TestImpatientBroker: it takes back a message that is held for longer than its consumer_timeout, and ends the operation.
// An operation that ends before loses nothing and moves nothing twice.
func TestImpatientBroker(t *testing.T) {
	t.Parallel()
	brokertest.OwnNode(t).ConsumerTimeout(5000, 100)
	r := newRig(t, quorum) // RabbitMQ 4.3 is patient with others
	r.park(r.numbered(90)...)
	if p, err := r.Redrive(t.Context(), Redrive{Rate: "5"}, nil); !errors.Is(err, ErrStopped) || p.Done == 90 {
		t.Errorf("the broker is patient: %+v, %v", p, err)
	}
	r.nothingLost(90)
	r.park(r.numbered(70)...)
	r.hold = time.Second
	if p, err := r.Redrive(t.Context(), Redrive{Rate: "10"}, nil); !errors.Is(err, errHeld) {
		t.Errorf("%+v, %v", p, err)
	}
	_ = r.redrive(Redrive{})
	if got := ids(r.drain(r.plan.Queue)); len(got) != 70 || !slices.IsSorted(got) {
		t.Errorf("%d moved: %q", len(got), got)
	}
}
