package declare

import (
	"encoding/base64"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

func limited(n int) Kept { return Kept{Known: true, Quorum: true, Named: true, Limit: n} }

// TestKeeping: what the broker says about a queue another process has declared.
func TestKeeping(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	s := session(t, url)
	type queue struct {
		name string
		args amqp.Table
		want Kept
	}
	queues := []queue{
		{"classic", nil, Kept{Known: true}},
		{"classic with more", amqp.Table{"x-max-length": int64(10), topology.ArgDLX: "elsewhere", "x-queue-mode": "lazy"}, Kept{Known: true}},
		{"as we declare it", amqp.Table{topology.ArgType: topology.TypeQuorum, topology.ArgDeliveryLimit: topology.NoDeliveryLimit}, limited(Unlimited)},
		{"none", amqp.Table{topology.ArgType: topology.TypeQuorum}, Kept{Known: true, Quorum: true}},
		{"none, and more", amqp.Table{topology.ArgType: topology.TypeQuorum, "x-max-length": int64(10)}, Kept{Known: true, Quorum: true}},
		{"five", amqp.Table{topology.ArgType: topology.TypeQuorum, topology.ArgDeliveryLimit: int32(5)}, limited(5)},
		{"nothing at all", amqp.Table{topology.ArgType: topology.TypeQuorum, topology.ArgDeliveryLimit: int32(0)}, limited(0)},
		{"with a dead-letter exchange", amqp.Table{topology.ArgType: topology.TypeQuorum, topology.ArgDeliveryLimit: int64(7), topology.ArgDLX: "elsewhere"}, limited(7)},
		{"with a size", amqp.Table{topology.ArgType: topology.TypeQuorum, topology.ArgDeliveryLimit: int64(3), "x-quorum-initial-group-size": int64(1), "x-max-length": int64(10)}, limited(3)},
		{"all consumers, expressly", amqp.Table{topology.ArgType: topology.TypeQuorum, topology.ArgSingleConsumer: false, topology.ArgDeliveryLimit: int64(3)}, limited(3)},
		{"one consumer", amqp.Table{topology.ArgSingleConsumer: true}, Kept{Known: true, Single: true}},
		{"quorum, one consumer", amqp.Table{topology.ArgType: topology.TypeQuorum, topology.ArgSingleConsumer: true, topology.ArgDeliveryLimit: int64(3)}, Kept{Known: true, Quorum: true, Named: true, Limit: 3, Single: true}},
		{"auto-delete", nil, Kept{Known: true, Vanishes: true}},
	}
	if !strings.HasPrefix(brokertest.Version(t), "3.") {
		queues = append(queues, queue{"no end", amqp.Table{topology.ArgType: topology.TypeQuorum, topology.ArgDeliveryLimit: int64(-1)}, limited(-1)})
	}
	ch := channel(t, url)
	for _, c := range queues {
		t.Run(c.name, func(t *testing.T) {
			must.Get(ch.QueueDeclare(c.name, true, c.want.Vanishes, false, false, c.args))(t)
			n, err := Keeping(t.Context(), s, c.name)
			if err != nil || n != c.want {
				t.Errorf("%+v, %v; want %+v", n, err, c.want)
			}
		})
	}
}

// TestSingleActiveConsumer: with order, a queue that can have several consumers at once is refused, and so is one of
// which this cannot be seen. The least permissions are enough to see it.
func TestSingleActiveConsumer(t *testing.T) {
	t.Parallel()
	url, with := brokertest.URL(t), oneUser(t)
	o := topology.Options{Service: "wms-cincout", QueueType: topology.TypeClassic, SingleActive: true}
	p := build(t, o)
	fits(t, url, p, topology.ModeDeclare)
	fits(t, with(p.Permissions(topology.ModeVerify)), p, topology.ModeVerify)
	o.SingleActive = false
	unordered := build(t, o)
	for _, f := range ensure(t, url, unordered, topology.ModeVerify) {
		if f.Judgement != topology.Harmless || f.Property != topology.ArgSingleConsumer {
			t.Errorf("without order: %s", f)
		}
	}
	refused := func(u string, mode topology.Mode, found, fix string) {
		t.Helper()
		f := Blocking(ensure(t, u, p, mode))
		if len(f) != 1 || f[0].Property != topology.ArgSingleConsumer || f[0].Found != found || !strings.Contains(f[0].Fix, fix) {
			t.Errorf("%s: %v", mode, f)
		}
	}
	refused(with(unordered.Permissions(topology.ModeVerify)), topology.ModeVerify, "not seen without configure permission", "SIDECAR_ORDER_SCOPE=replica")

	ch := channel(t, url)
	must.Get(ch.QueueDelete(p.Queue, false, false, false))(t)
	args := amqp.Table{topology.ArgType: topology.TypeClassic}
	must.Get(ch.QueueDeclare(p.Queue, true, false, false, false, args))(t)
	for _, mode := range []topology.Mode{topology.ModeDeclare, topology.ModeVerify} {
		refused(url, mode, "none", "SIDECAR_ORDER_SCOPE=replica accepts order within each replica only, or use a queue beside it: another SIDECAR_QUEUE")
	}
}

// TestDefinitions: what is imported is what would have been declared.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	for name, p := range variants(t) {
		file := must.Get(p.Definitions(brokertest.VhostName(t)))(t)
		brokertest.Eval(t, `ok = rabbit_definitions:import_raw(base64:decode("`+base64.StdEncoding.EncodeToString(file)+`"))`)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fits(t, url, p, topology.ModeVerify)
			travels(t, url, p)
			fits(t, url, p, topology.ModeDeclare)
		})
	}
}
