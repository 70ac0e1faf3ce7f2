package consume

import (
	"context"
	"testing"
	"time"

	"sidecar/internal/amqpwire"
)

// TestDeliveryTagsOutOfOrder: the window would grow with the distance between two tags, and settle what it does not
// hold.
func TestDeliveryTagsOutOfOrder(t *testing.T) {
	t.Parallel()
	for _, tags := range [][]uint64{{0}, {2}, {1, 1}, {1, 3}, {1, 2, 1}, {1 << 63}, {1, 1 << 63}} {
		c := New(benchOptions(t, 1))
		t.Cleanup(func() { c.Drain(context.Background()) })
		r, killed, q := benchSession(t, c), 0, amqpwire.NewDeliveries(0)
		r.kill = func() { killed++ }
		for _, tag := range tags {
			q.Add(benchDelivery(tag, nil, time.Now()))
		}
		if ended := r.fetch(q); !ended || killed != 1 || len(r.pending) != 0 {
			t.Errorf("%v: ended %v, killed %d times, %d pending", tags, ended, killed, len(r.pending))
		}
	}
}
