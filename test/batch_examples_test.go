package test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// batchTaken is the line that an app of examples/batches prints for each POST.
var batchTaken = regexp.MustCompile(`(?m)^(\d+) messages, (\d+) failed, (\d+) pieces reserved$`)

// TestBatchExamples: each example does the work of every message of its batches once. What it says of one message touches
// no other: some are retried until the app can do them, some are parked at once, and some after the last retry.
func TestBatchExamples(t *testing.T) {
	t.Parallel()
	for name, argv := range map[string][]string{
		"python": {exampleTool(t, "EXAMPLES_PYTHON"), "../examples/batches/python/app.py"},
		"node":   {"node", "../examples/batches/node/app.mjs"},
		"go":     {exampleProgram(t, "batches/go")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, url := launchApp(t, argv...)
			sc := newScene(t).with("APP_URL", url, "BATCH_SIZE", "8", "BATCH_WAIT", "1s", "CONCURRENCY", "2",
				"MAX_RETRIES", "2", "RETRY_DELAY", "50ms").seedTTL(50)
			sc.sendOrders()
			s := sc.run()
			eventually(t, "45 orders are done and three are parked", func() bool {
				return sc.ready(sc.dlq()) == 3 && batches(log, 0).pieces == 45
			})
			if n := batches(log, 0).largest; n != 8 {
				t.Errorf("the largest batch has %d messages, want 8", n)
			}
			if n := batches(log, 1).largest; n < 2 {
				t.Errorf("no batch of several messages has one that failed:\n%s", log)
			}
			checkParkedOrders(t, sc.take(sc.dlq(), 3))
			sc.settledAll(s, 0)
		})
	}
}

// sendOrders publishes forty good orders and between them five that succeed in the end, one of them twice and two without
// an id, and three that do not.
func (sc *scene) sendOrders() {
	sc.t.Helper()
	order := func(id, body, closed string) {
		m := message(id)
		m.Body, m.Headers = []byte(body), amqp.Table{"closed": closed}
		sc.sendMessage(m)
	}
	for i := range 40 {
		order(fmt.Sprintf("good-%d", i), `{"pieces":1}`, "0")
		switch i {
		case 20:
			order("repeated", `{"pieces":1}`, "0")
			order("repeated", `{"pieces":1}`, "0")
			order("later", `{"pieces":1}`, "2")
			order("lines", "{\n \"pieces\": 1\n}", "0")
			for range 2 { // without an id neither is taken for the other
				sc.sendMessage(amqp.Publishing{Body: []byte(`{"pieces":1}`)})
			}
		case 21:
			order("never", `{"pieces":1}`, "3")
			order("nothing", `{}`, "0")
			order("broken", `{"pieces":`, "0")
		}
	}
}

func checkParkedOrders(t *testing.T, parked []amqp.Delivery) {
	t.Helper()
	got := map[string]string{}
	for _, d := range parked {
		h := d.Headers
		got[d.MessageId] = fmt.Sprintf("%v %v %v", h["x-final-reason"], h["x-final-retry-count"], h["x-final-status-code"])
		if detail, _ := h["x-final-detail"].(string); detail == "" {
			t.Errorf("%s is parked without the reason that the app gave", d.MessageId)
		}
	}
	if want := map[string]string{
		"never": "max_retries 2 503", "nothing": "disposition 0 200", "broken": "max_retries 2 500",
	}; !maps.Equal(got, want) {
		t.Errorf("parked: %q, want %q", got, want)
	}
}

type batchesTaken struct{ largest, pieces int }

// batches is what the app has taken by now: the largest batch of which at least so many messages failed, and the pieces
// that are reserved.
func batches(log *output, failed int) (b batchesTaken) {
	for _, line := range batchTaken.FindAllStringSubmatch(log.String(), -1) {
		number := func(i int) int { n, _ := strconv.Atoi(line[i]); return n }
		if number(2) >= failed {
			b.largest = max(b.largest, number(1))
		}
		b.pieces = max(b.pieces, number(3))
	}
	return b
}

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
