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
// In rounds that are shorter an operation goes on for any time. It waits for that timeout of five seconds, twice.
func TestImpatientBroker(t *testing.T) {
	t.Parallel()
	brokertest.OwnNode(t).ConsumerTimeout(5000, 100)
	r := newRig(t, quorum) // RabbitMQ 4.3 is patient with others
	r.park(r.numbered(90)...)
	r.hold = 0
	if p, err := r.Redrive(t.Context(), Redrive{Rate: 5}, nil); !errors.Is(err, ErrStopped) || p.Done == 90 {
		t.Errorf("the broker is patient: %+v, %v", p, err)
	}
	_ = r.drain(r.plan.Queue)
	_ = r.drain(r.name)
	r.park(r.numbered(70)...)
	r.hold = 250 * time.Millisecond
	if p, err := r.Redrive(t.Context(), Redrive{Rate: 10}, nil); err != nil || p.Done != 70 {
		t.Errorf("%+v, %v", p, err)
	}
	if got := ids(r.drain(r.plan.Queue)); len(got) != 70 || !slices.IsSorted(got) {
		t.Errorf("%d moved: %q", len(got), got)
	}
}
