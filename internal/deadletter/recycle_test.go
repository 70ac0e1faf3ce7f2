package deadletter

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// holds fails unless the queue holds just these messages, in this order.
func (r *rig) holds(queue string, list []amqp.Publishing) {
	r.t.Helper()
	got := r.drain(queue)
	if !slices.EqualFunc(got, list, func(d amqp.Delivery, m amqp.Publishing) bool { return d.MessageId == m.MessageId }) {
		r.t.Errorf("%d in %s, want %d, or not in order: %q", len(got), queue, len(list), ids(got))
	}
}

// kept is holds for the dead-letter queue.
func (r *rig) kept(list []amqp.Publishing) {
	r.t.Helper()
	r.holds(r.name, list)
}

// readsInOrder reads until a read is refused, at most so often, and returns how often it was not.
func (r *rig) readsInOrder(q *Queue, list []amqp.Publishing, most int) (reads int, err error) {
	r.t.Helper()
	for ; reads < most; reads++ {
		sum, err := q.Browse(r.t.Context(), Filter{}, Scan{Limit: 3}, nil, func(m *Message) error {
			if m.MessageID != list[m.Position-1].MessageId {
				return errors.New(m.MessageID + " is first")
			}
			return nil
		})
		if err != nil {
			return reads, err
		}
		if sum.Total != len(list) {
			r.t.Fatalf("read %d: %+v", reads, sum)
		}
	}
	return reads, nil
}

// TestRecyclingFails: a queue whose messages cannot be moved round is refused in time, and loses none by that.
func TestRecyclingFails(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.redeclare(amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(14)})
	list := r.numbered(40)
	r.park(list...)
	plan := *r.plan
	plan.Park.Exchange = "no.such.exchange"
	r.plan = &plan
	q := r.another()
	reads, err := r.readsInOrder(q, list, 20)
	if err != nil && (reads < careful || !errors.Is(err, ErrUnsafe)) {
		t.Errorf("read %d: %v", reads, err)
	}
	for range 5 { // newer brokers do not count what is given back
		if _, again := q.Browse(t.Context(), Filter{}, Scan{}, nil, func(*Message) error { return nil }); (again == nil) != (err == nil) {
			t.Errorf("after %v: %v", err, again)
		}
	}
	if got := r.drain(r.name); len(got) != len(list) {
		t.Errorf("%d left", len(got))
	}
}

// TestNegativeLimit: such a queue puts behind everything else what is given back to it.
func TestNegativeLimit(t *testing.T) {
	t.Parallel()
	if strings.HasPrefix(brokertest.Version(t), "3.") {
		return // refuses to declare it
	}
	r := newRig(t, nil)
	r.redeclare(amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(-1)})
	list := r.numbered(30)
	r.park(list...)
	if reads, err := r.readsInOrder(r.Queue, list, 3); err != nil {
		t.Errorf("read %d: %v", reads, err)
	}
	r.redrive(Redrive{Selection: Selection{Limit: 2}})
	r.kept(list[2:])
}

// TestRightsOfAReader: a user who cannot see the limit of a queue may not read a queue that counts.
func TestRightsOfAReader(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig, kind string) {
		list := r.numbered(30)
		r.park(list...)
		q, refused := r.as("", "", ".*"), 0
		for range 4 {
			_, err := q.Browse(t.Context(), Filter{}, Scan{Limit: 3}, nil, func(*Message) error { return nil })
			if errors.Is(err, ErrUnsafe) && strings.Contains(err.Error(), "grant configure on the queue") {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		}
		if got := r.drain(r.name); len(got) != len(list) || kind == "classic" && refused > 0 || refused > 0 && got[0].Redelivered {
			t.Errorf("%d left, %d reads refused", len(got), refused)
		}
	}, "classic", "quorum with 1")
}

// TestTooLargeForTheBroker: one message that the broker would not take a second time does not hold up the others, and
// costs nothing twice.
func TestTooLargeForTheBroker(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	r := newRig(t, nil)
	r.redeclare(amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(20)})
	list := r.numbered(61)
	list[20].Body = make([]byte, 60_000)
	r.park(list...)
	var exported bytes.Buffer
	must.Get(r.Export(t.Context(), &exported, Selection{}, nil))(t)
	node.MaxSize(50_000)
	for i := range 12 {
		if _, err := r.Browse(t.Context(), Filter{}, Scan{}, nil, func(*Message) error { return nil }); err != nil && !errors.Is(err, ErrUnsafe) {
			t.Errorf("read %d: %v", i, err)
		}
	}
	brokertest.WaitReady(t, r.url, r.name, 61)
	p, err := r.Redrive(t.Context(), Redrive{}, nil)
	if err != nil && !errors.Is(err, ErrUnsafe) {
		t.Errorf("%+v %v", p, err)
	}
	left, moved := ids(r.drain(r.name)), ids(r.drain(r.plan.Queue))
	if len(left)+len(moved) != 61 || !slices.Contains(left, "m0021") || err == nil && len(left) != 1 {
		t.Errorf("%v; %d moved, left: %q", err, len(moved), left)
	}

	p, err = r.Import(t.Context(), &exported, 0, nil)
	if at, ok := errors.AsType[*LineError](err); !ok || at.Line != 21 || !errors.Is(err, ErrInvalid) || p.Done != 20 {
		t.Errorf("%+v %v", p, err)
	}
	brokertest.WaitReady(t, r.url, r.name, 20)
}

// TestUnfitQueues: where a read would lose messages there is none.
func TestUnfitQueues(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	ch := brokertest.Channel(t, r.url)
	for name, args := range map[string]amqp.Table{
		"auto-delete":            nil,
		"single-active-consumer": {"x-single-active-consumer": true},
		"delivery limit of 0":    {"x-queue-type": "quorum", "x-delivery-limit": int64(0)},
	} {
		must.Get(ch.QueueDelete(r.name, false, false, false))(t)
		must.Get(ch.QueueDeclare(r.name, true, args == nil, false, false, args))(t)
		r.park(r.numbered(5)...)
		_, err := r.Browse(t.Context(), Filter{}, Scan{}, nil, func(*Message) error { return nil })
		if !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), name) {
			t.Errorf("read: %v", err)
		}
		if p, err := r.Redrive(t.Context(), Redrive{}, nil); !errors.Is(err, ErrUnsafe) || p.Done != 0 {
			t.Errorf("redrive: %+v %v", p, err)
		}
		brokertest.WaitReady(t, r.url, r.name, 5)
	}
}
