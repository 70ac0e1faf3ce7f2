package deadletter

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// subscribed declares a topology for each name, and returns their dead-letter queues.
func subscribed(t *testing.T, o topology.Options, names ...string) (Queues, *amqp.Channel) {
	t.Helper()
	url := brokertest.URL(t)
	b := broker.Options{URLs: func() ([]string, error) { return []string{url}, nil }, Timeout: 30 * time.Second, Name: "test"}
	s := must.Get(broker.NewDialer(b).Dial(t.Context()))(t)
	defer s.Close()
	var owners []Owner
	for _, name := range names {
		o.Service = name
		plan := must.Get(topology.Build(o))(t)
		if report, err := declare.Ensure(t.Context(), s, plan, topology.ModeDeclare); err != nil || len(report.Findings) > 0 {
			t.Fatal(report.Findings, err)
		}
		owners = append(owners, Owner{name, plan})
	}
	return New(Options{Broker: b, By: "operator"}, owners...), brokertest.Channel(t, url)
}

// parkedBy parks a message of a subscription.
func parkedBy(t *testing.T, ch *amqp.Channel, plan *topology.Plan, id string) {
	t.Helper()
	brokertest.Publish(t, ch, "", plan.Park.Queue, amqp.Publishing{MessageId: id, Headers: amqp.Table{
		"x-original-queue": plan.Queue, "x-final-reason": "max_retries",
	}})
}

// shown lists the messages as "subscription id", foreign ones as "! id".
func shown(t *testing.T, all Queues, s Scan) (lines []string, sum Progress) {
	t.Helper()
	sum = must.Get(all.Browse(t.Context(), Filter{}, s, func(m *Message) error {
		of := m.Subscription
		if m.Foreign {
			of = "!"
		}
		lines = append(lines, of+" "+m.MessageID)
		return nil
	}))(t)
	return lines, sum
}

// TestSharedQueueIsReadOnce: subscriptions that park in one queue have one Queue; each message is its subscription's,
// and returns to the queue of that one.
func TestSharedQueueIsReadOnce(t *testing.T) {
	t.Parallel()
	all, ch := subscribed(t, topology.Options{Preset: topology.PresetTopicTiers}, "orders", "refunds")
	if len(all) != 1 || !slices.Equal(all.Subscriptions(), []string{"orders", "refunds"}) {
		t.Fatalf("%d queues of %v", len(all), all.Subscriptions())
	}
	orders, refunds := all[0].Owners[0].Plan, all[0].Owners[1].Plan
	parkedBy(t, ch, orders, "1")
	parkedBy(t, ch, refunds, "2")
	parkedBy(t, ch, &topology.Plan{Queue: "wms.other", Park: orders.Park}, "3")
	parkedBy(t, ch, refunds, "4")
	brokertest.WaitReady(t, brokertest.URL(t), orders.Park.Queue, 4)

	lines, sum := shown(t, all, Scan{})
	if want := []string{"orders 1", "refunds 2", "! 3", "refunds 4"}; !slices.Equal(lines, want) || sum.Total != 4 || all.Name() != orders.Park.Queue {
		t.Errorf("%q %+v", lines, sum)
	}
	only := must.Get(all.Of("refunds"))(t)
	if lines, _ := shown(t, only, Scan{Limit: 1}); !slices.Equal(lines, []string{"refunds 2"}) {
		t.Errorf("at most one of refunds: %q", lines)
	}
	if lines, sum := shown(t, only, Scan{}); !slices.Equal(lines, []string{"refunds 2", "refunds 4"}) || sum.Matched != 2 || sum.Scanned != 4 {
		t.Errorf("%q %+v", lines, sum)
	}
	if lines, sum := shown(t, must.Get(all.Of("orders"))(t), Scan{}); !slices.Equal(lines, []string{"orders 1"}) || sum.Matched != 1 {
		t.Errorf("of orders: %q %+v", lines, sum)
	}
	groups, _, err := all.Groups(t.Context(), Filter{}, Scan{})
	if err != nil || len(groups) != 3 || groups[0].Subscription != "refunds" || groups[0].Count != 2 || groups[0].ID != groups[1].ID {
		t.Errorf("%+v", groups)
	}

	q := must.Get(only.Only())(t)
	p := must.Get(q.Redrive(t.Context(), Redrive{Selection: Selection{Limit: 1}}, nil))(t)
	if p.Done != 1 || p.Skipped != 0 {
		t.Errorf("%+v", p)
	}
	p = must.Get(must.Get(all.Only())(t).Redrive(t.Context(), Redrive{}, nil))(t)
	if p.Done != 2 || p.Skipped != 1 {
		t.Errorf("%+v", p)
	}
	brokertest.WaitReady(t, brokertest.URL(t), orders.Queue, 1)
	brokertest.WaitReady(t, brokertest.URL(t), refunds.Queue, 2)
	if _, err := q.Redrive(t.Context(), Redrive{To: Target(refunds.Queue)}, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("to its own queue: %v", err)
	}
}

// TestSeveralQueues: reads go through all queues within one bound, actions are for one.
func TestSeveralQueues(t *testing.T) {
	t.Parallel()
	all, ch := subscribed(t, topology.Options{Preset: topology.PresetFanout}, "orders", "refunds", "returns")
	if len(all) != 3 {
		t.Fatalf("%d queues", len(all))
	}
	for i, ids := range [][]string{{"1", "2"}, {"3"}, {"4", "1"}} {
		for _, id := range ids {
			parkedBy(t, ch, all[i].plan(), id)
		}
		brokertest.WaitReady(t, brokertest.URL(t), all[i].Name(), len(ids))
	}
	lines, sum := shown(t, all, Scan{})
	if want := []string{"orders 1", "orders 2", "refunds 3", "returns 4", "returns 1"}; !slices.Equal(lines, want) || sum.Total != 5 || sum.Scanned < sum.Total {
		t.Errorf("%q %+v", lines, sum)
	}
	for _, s := range []Scan{{Limit: 1}, {Depth: 1}} {
		if lines, sum := shown(t, all, s); len(lines) != 3 || sum.Total != 5 || sum.Scanned != 3 {
			t.Errorf("%+v: %q %+v", s, lines, sum)
		}
	}
	if m, _, err := all.Find(t.Context(), "4", 0); err != nil || m.Subscription != "returns" {
		t.Errorf("%+v %v", m, err)
	}
	if m, more, err := all.Find(t.Context(), "1", 0); err != nil || m.Subscription != "orders" || more != 0 {
		t.Errorf("%+v %d %v", m, more, err)
	}
	if _, _, err := all.Find(t.Context(), "5", 0); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if _, err := all.Only(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "one of orders, refunds, returns") {
		t.Error(err)
	}
	if _, err := all.Of("order"); !errors.Is(err, ErrNoSubscription) || !strings.Contains(err.Error(), `"order"; the names are: orders, refunds, returns`) {
		t.Error(err)
	}
	if same := must.Get(all.Of(""))(t); len(same) != 3 {
		t.Errorf("%d queues", len(same))
	}
	must.Get(ch.QueueDelete(all[1].Name(), false, false, false))(t)
	if _, err := all.Browse(t.Context(), Filter{}, Scan{}, func(*Message) error { return nil }); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), all[1].Name()) {
		t.Error(err)
	}
}
