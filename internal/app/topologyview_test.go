package app

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"sidecar/internal/admin"
	"sidecar/internal/deadletter"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

func TestPicture(t *testing.T) {
	t.Parallel()
	plan := must.Get(newPlan(load(t, "SIDECAR_SERVICE=wms-cincout")))(t)
	want := `{"subscription":"orders","preset":"fanout","service":"wms-cincout","queue":"wms.queue.wms-cincout",` +
		`"exchanges":[{"name":"wms.main-exchange","type":"fanout","shared":true},{"name":"wms.retry-exchange.wms-cincout","type":"direct"}],` +
		`"queues":[{"name":"wms.dlq.wms-cincout","kind":"dlq"},` +
		`{"name":"wms.retry-queue.wms-cincout","kind":"retry","arguments":{` +
		`"x-dead-letter-exchange":"","x-dead-letter-routing-key":"wms.queue.wms-cincout","x-message-ttl":5000}},` +
		`{"name":"wms.queue.wms-cincout","kind":"main","arguments":{` +
		`"x-dead-letter-exchange":"wms.retry-exchange.wms-cincout","x-dead-letter-routing-key":"retry"}}],` +
		`"bindings":[{"exchange":"wms.main-exchange","queue":"wms.queue.wms-cincout"},` +
		`{"exchange":"wms.retry-exchange.wms-cincout","key":"retry","queue":"wms.retry-queue.wms-cincout"}],` +
		`"waits":[{"exchange":"wms.retry-exchange.wms-cincout","key":"retry","queue":"wms.retry-queue.wms-cincout","delay":"5s"}],` +
		`"park":{"exchange":"","key":"wms.dlq.wms-cincout","queue":"wms.dlq.wms-cincout"},` +
		`"redrive":{"exchange":"","key":"wms.queue.wms-cincout","queue":"wms.queue.wms-cincout"}}`
	if got := string(must.Get(json.Marshal(topologyView("orders", plan)))(t)); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestPictureOfAQueueThatDelays: its waits are the shortest and the longest delay.
func TestPictureOfAQueueThatDelays(t *testing.T) {
	t.Parallel()
	for delays, want := range map[string][]string{"SIDECAR_RETRY_DELAY=3s": {"3s"}, "SIDECAR_RETRY_DELAYS=3s,2m": {"3s", "2m0s"}} {
		plan := must.Get(newPlan(load(t, "SIDECAR_SERVICE=wms-cincout", "SIDECAR_TOPOLOGY=native", delays)))(t)
		var waits []admin.Wait
		for _, d := range want {
			waits = append(waits, admin.Wait{Route: topology.Route{Key: plan.Queue, Queue: plan.Queue}, Delay: d})
		}
		if got := topologyView("", plan); !reflect.DeepEqual(got.Waits, waits) {
			t.Errorf("%s: %+v", delays, got.Waits)
		}
	}
}

func TestWithoutADeadLetterQueue(t *testing.T) {
	t.Parallel()
	cfg := load(t, "SIDECAR_TOPOLOGY=dead-letter", "SIDECAR_DEAD_LETTER=disabled", "SIDECAR_QUEUE=orders", "SIDECAR_EXCHANGE=amq.topic", "SIDECAR_BINDINGS=amq.topic:orders.#")
	a := fresh(t, cfg)
	if p := topologyView("", a.plan); p.Park != (topology.Route{}) || p.Redrive != p.Park || p.Waits == nil {
		t.Errorf("%+v", p)
	}
	if n := must.Get(testutil.GatherAndCount(a.registry, "sidecar_redriven_total"))(t); n != 2 { // alerts need both results
		t.Errorf("%d series", n)
	}
	if _, err := DeadLetters(cfg, Build{}, "operator"); !errors.Is(err, ErrConfig) || !errors.Is(err, deadletter.ErrNoQueue) {
		t.Errorf("%v", err)
	}
}

func TestDepthsAreMeasuredAtAnInterval(t *testing.T) {
	t.Parallel()
	a := fresh(t, load(t))
	measure := a.subscriptions[0].measure
	for range 3 {
		a.Flow()
	}
	if len(measure) != 1 {
		t.Fatalf("asked %d times", len(measure))
	}
	<-measure
	if a.Flow(); len(measure) != 0 {
		t.Error("asked again at once")
	}
	a.measured = time.Now().Add(-measureEvery)
	if a.Flow(); len(measure) != 1 {
		t.Error("not asked again")
	}
}
