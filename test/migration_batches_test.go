package test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// migratedBatches are the handlers of examples/migration/batches, with why each parks an order that is invalid and one that
// cannot be billed now.
var migratedBatches = map[string]struct {
	env           []string
	invalid, away string
}{
	"after": {
		[]string{"CLOUDEVENTS", "structured", "BATCH_FORMAT", "cloudevents"},
		"disposition 0 DROP", "max_retries 1 RETRY",
	},
	"lambda": {nil, "max_retries 1 batchItemFailures", "max_retries 1 batchItemFailures"},
}

// TestMigratedBatches: a handler of Dapr's bulk subscribe, and one of AWS Lambda, bill every order of their batches once
// and have the others retried or parked.
func TestMigratedBatches(t *testing.T) {
	t.Parallel()
	for path, c := range migratedBatches {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			log, url := launchApp(t, exampleTool(t, "EXAMPLES_FLASK"), "../examples/migration/batches/app.py")
			sc := newScene(t).with("APP_URL", url+path, "BATCH_SIZE", "8", "CONCURRENCY", "2", "MAX_RETRIES", "1", "RETRY_DELAY", "50ms")
			sc.with(c.env...).seedTTL(50)
			want := map[string]int{}
			for i := range 40 {
				id := fmt.Sprintf("order-%d", i)
				sc.sendMessage(daprOrder(path, id, 1))
				want[id] = 1
				if i == 20 {
					sc.sendMessage(daprOrder(path, "invalid", 0), daprOrder(path, "away", 1001))
				}
			}
			s := sc.run()
			got := map[string]string{}
			for _, d := range sc.take(sc.dlq(), 2) {
				h := d.Headers
				got[d.MessageId] = fmt.Sprintf("%v %v %v", h["x-final-reason"], h["x-final-retry-count"], h["x-final-detail"])
			}
			if want := map[string]string{"invalid": c.invalid, "away": c.away}; !maps.Equal(got, want) {
				t.Errorf("parked: %q, want %q", got, want)
			}
			m := &migration{scene: sc, handled: []*output{log}}
			m.wantBilled(1, slices.Collect(maps.Keys(want))...)
			sc.settledAll(s, 0)
			if posts := strings.Count(log.String(), `"POST /`+path); posts > len(want) {
				t.Errorf("%d POSTs of %d messages", posts, len(want)+2)
			}
		})
	}
}

// daprOrder is an order as Dapr publishes it, or for another path its data alone.
func daprOrder(path, id string, amount int) amqp.Publishing {
	m := message(id)
	data := fmt.Sprintf(`{"id":%q,"amount":%d}`, id, amount)
	if m.Body = []byte(data); path == "after" {
		m.ContentType = "text/plain"
		m.Body = fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"shop","type":"com.dapr.event.sent","datacontenttype":"application/json","data":%s}`, id, data)
	}
	return m
}
