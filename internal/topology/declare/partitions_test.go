package declare

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

func partitions(t testing.TB, n int, by string) *topology.Plan {
	t.Helper()
	return build(t, topology.Options{
		Service: "wms-cincout", Partitions: n, PartitionBy: by, SingleActive: true,
	})
}

// TestPartitions: with the permissions of the plan the partitions are declared and verified, each of them alone too.
func TestPartitions(t *testing.T) {
	t.Parallel()
	url, with, p := brokertest.URL(t), oneUser(t), partitions(t, 3, "header:customer")
	for _, part := range p.Parts() {
		fits(t, with(p.Permissions(topology.ModeDeclare)), part, topology.ModeDeclare)
		fits(t, with(p.Permissions(topology.ModeVerify)), part, topology.ModeVerify)
		if !EnsureAtOnce(t.Context(), session(t, url), part, topology.ModeDeclare) {
			t.Errorf("%s cannot be declared at once", part.Queue)
		}
	}
	for _, mode := range []topology.Mode{topology.ModeDeclare, topology.ModeVerify, topology.ModeNone} {
		s := session(t, with(p.Permissions(mode)))
		if f, err := Preflight(t.Context(), s, p, mode); err != nil || f != nil {
			t.Errorf("%s: %v, %v", mode, f, err)
		}
	}
	all := p.Permissions(topology.ModeDeclare)
	all.Write = "^amq.default$"
	f := must.Get(Preflight(t.Context(), session(t, with(all)), p, topology.ModeDeclare))(t)
	if !slices.ContainsFunc(f, func(f Finding) bool {
		return strings.Contains(f.Object, `binding of exchange "wms.queue.wms-cincout.partitions" to exchange "wms.main-exchange"`)
	}) {
		t.Errorf("without write permission: %v", f)
	}
}

// TestKeysStayInTheirPartition: all messages of a key are in one queue, and a redriven message returns there.
func TestKeysStayInTheirPartition(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"routing-key", "correlation-id", "header:customer"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			const keys, each = 30, 2
			url, p := brokertest.URL(t), partitions(t, 4, by)
			fits(t, url, p, topology.ModeDeclare)
			ch := channel(t, url)
			for i := range each {
				for k := range keys {
					m := amqp.Publishing{CorrelationId: fmt.Sprint(k), Headers: amqp.Table{"customer": fmt.Sprint(k)}, MessageId: fmt.Sprint(i)}
					brokertest.Publish(t, ch, "wms.main-exchange", fmt.Sprint(k), m)
				}
			}
			brokertest.Publish(t, ch, "wms.main-exchange", "", amqp.Publishing{})
			of := map[string]string{} // the partition of each key
			total, last := 0, map[*topology.Plan]amqp.Delivery{}
			for _, part := range p.Parts() {
				n := brokertest.Ready(t, url, part.Queue)
				if total += n; n == 0 {
					t.Errorf("%s is empty", part.Queue)
				}
				for range n {
					d := get(t, ch, part.Queue)
					if known := of[d.CorrelationId]; known != "" && known != part.Queue {
						t.Errorf("key %s is in %s and %s", d.CorrelationId, known, part.Queue)
					}
					of[d.CorrelationId], last[part] = part.Queue, d
				}
			}
			for part, d := range last {
				redrive(t, url, part, p, &d)
			}
			if total != keys*each+1 {
				t.Errorf("%d messages in all partitions", total)
			}
		})
	}
}

// redrive parks a message of a partition, and moves it back with the plan of the whole.
func redrive(t testing.TB, url string, part, whole *topology.Plan, d *amqp.Delivery) {
	t.Helper()
	var m message.Message
	part.Read(&m, d)
	parked := part.Settlement(&m, message.Verdict{Action: message.Park, Reason: message.ReasonMaxRetries}).Publish
	brokertest.Publish(t, channel(t, url), parked.Exchange, parked.Key, parked.Msg)
	dead := brokertest.Get(t, url, part.Park.Queue, soon)
	if !whole.Owns(fmt.Sprint(dead.Headers["x-original-queue"])) {
		t.Errorf("parked as a message of %v", dead.Headers["x-original-queue"])
	}
	pub, _ := whole.RedrivePublication(&dead, topology.Redriving{})
	publish(t, url, pub.Exchange, pub.Key, pub.Msg)
	back := get(t, channel(t, url), part.Queue)
	part.Read(&m, &back)
	if m.Exchange != d.Exchange || m.RoutingKey != d.RoutingKey || m.Untrusted {
		t.Errorf("redriven as a message of %s, key %s", m.Exchange, m.RoutingKey)
	}
}

// TestAnotherNumberOfPartitions: what an earlier number has left is reported, and so is the queue that was divided.
func TestAnotherNumberOfPartitions(t *testing.T) {
	t.Parallel()
	url, p := brokertest.URL(t), partitions(t, 4, "routing-key")
	fits(t, url, p, topology.ModeDeclare)
	brokertest.Queue(t, url, "wms.queue.wms-cincout", nil)
	brokertest.Send(t, url, "wms.queue.wms-cincout.p3", "x")
	fewer := partitions(t, 3, "routing-key")
	found := ensure(t, url, fewer, topology.ModeVerify)
	for i, want := range []string{`queue "wms.queue.wms-cincout": leftover, found 0 messages`, `queue "wms.queue.wms-cincout.p3": leftover, found 1 messages`} {
		if len(found) != 2 || found[i].Judgement != topology.Weaker || !strings.HasPrefix(found[i].String(), want) {
			t.Errorf("%v", found)
		}
	}
}
