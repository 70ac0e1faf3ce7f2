package deadletter

import (
	"errors"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
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
		p, err := slow.Redrive(t.Context(), Redrive{Rate: "20"}, nil)
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

// TestRedriveEnds: an app that fails everything does not make a redrive endless. Each message is moved once, also when
// all return meanwhile.
func TestRedriveEnds(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig, _ string) {
		r.park(r.numbered(90)...)
		ch := brokertest.Channel(t, r.url)
		stop := r.settling(func(_ int, d *amqp.Delivery) *message.VerdictReply {
			m := r.parked(d.MessageId, amqp.Table{"x-redriven-count": d.Headers["x-redriven-count"]})
			must.Do(t, ch.PublishWithContext(t.Context(), "", r.name, true, false, m))
			return nil
		})
		if p := r.redrive(Redrive{Rate: "200"}); p.Total != 90 || p.Done != 90 {
			t.Errorf("%+v", p)
		}
		brokertest.WaitReady(t, r.url, r.name, 90)
		stop()
		for _, d := range r.drain(r.name) {
			if n := number(d.Headers, "x-redriven-count"); n != 1 {
				t.Errorf("%s was moved %d times", d.MessageId, n)
			}
		}
	}, "classic", "quorum with 20")
}

// TestAlarm: a broker that takes no publishes ends the operation, and nothing is lost. The error says so, and does not
// call the operation a dry run.
func TestAlarm(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	r := newRig(t, nil)
	r.park(r.numbered(50)...)
	calm := node.Alarm()
	r.o.Broker.Timeout = 3 * time.Second // on a busy machine the alarm may be reported late
	p, err := r.another().Redrive(t.Context(), Redrive{}, nil)
	imported, importErr := r.another().Import(t.Context(), strings.NewReader(`{"routing_key":"","body":"x"}`+"\n"), 0, nil)
	calm()
	if !errors.Is(err, ErrStopped) {
		t.Error(err)
	}
	for i, p := range []Progress{p, imported} {
		err := []error{err, importErr}[i]
		const why = "the broker has not answered whether it takes the message: blocked by the broker's resource alarm"
		if !errors.Is(err, broker.ErrBlocked) || p.Done != 0 || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "dry run") {
			t.Errorf("%+v %v", p, err)
		}
	}
	r.nothingLost(50)
}
