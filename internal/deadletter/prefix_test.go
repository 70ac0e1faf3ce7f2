package deadletter

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
)

// TestAcksSpareWhatStays: many messages are acked at once, by one ack of everything up to a tag. Messages among them that
// cannot be moved, also the first and the last, stay in their order, and the others arrive in theirs.
func TestAcksSpareWhatStays(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig, _ string) {
		for _, fixed := range [][]int{{0, 1, 5, 150, 151, 299}, {40}, {298}} {
			list := r.numbered(300)
			var stay []amqp.Publishing
			for _, i := range fixed {
				list[i].Headers["big"] = strings.Repeat("x", 130_700) // leaves no room for the marks
				stay = append(stay, list[i])
			}
			r.park(list...)
			if p := r.redrive(Redrive{}); p.Done != 300-len(fixed) || p.Failed != len(fixed) {
				t.Errorf("%+v with %v", p, fixed)
			}
			var went []string
			for i := range list {
				if !slices.Contains(fixed, i) {
					went = append(went, list[i].MessageId)
				}
			}
			if got := ids(r.drain(r.plan.Queue)); !slices.Equal(got, went) {
				t.Errorf("with %v these arrived: %v", fixed, got)
			}
			r.kept(stay)
		}
	}, "classic", "quorum without a limit", "quorum that names none")
}

// TestAcksLeave: a discard acks many at once, and the last of them, too, before the operation ends.
func TestAcksLeave(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig, _ string) {
		r.park(r.numbered(2*ackTogether + 7)...)
		if p, err := r.Discard(t.Context(), Discard{Selection: Selection{Limit: ackTogether + 3}}, nil); err != nil || p.Done != ackTogether+3 {
			t.Errorf("%+v, %v", p, err)
		}
		if n := brokertest.Ready(t, r.url, r.name); n != ackTogether+4 {
			t.Errorf("%d left", n)
		}
		r.kept(r.numbered(2*ackTogether + 7)[ackTogether+3:])
	}, "classic", "quorum with 20")
}

// TestPieces: every message that stays is in one piece, in order, and no piece is larger than one nack may be.
func TestPieces(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]string{
		32:   "[71 32][103 32][200 9]",
		1000: "[200 73]",
	} {
		l := ledger{spans: []span{{}, {first: 40}}}
		for tag := uint64(40); tag < 112; tag++ {
			l.keep(&broker.Delivery{Delivery: amqp.Delivery{DeliveryTag: tag}})
		}
		l.keep(&broker.Delivery{Delivery: amqp.Delivery{DeliveryTag: 200}})
		got := ""
		for _, p := range l.spans[1].pieces(limit) {
			got += fmt.Sprintf("[%d %d]", p.last, p.size)
		}
		if got != want || l.stays != 40 {
			t.Errorf("%s, want %s; the first is %d", got, want, l.stays)
		}
	}
}
