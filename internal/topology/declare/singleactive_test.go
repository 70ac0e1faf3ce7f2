package declare

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

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
		refused(url, mode, "none", "SIDECAR_ORDER_SCOPE=replica accepts order within each replica only, or set SIDECAR_QUEUE")
	}
}
