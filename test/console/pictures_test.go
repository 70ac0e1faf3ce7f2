//go:build nightly

package console

import (
	"fmt"
	"testing"
	"time"
)

// TestPictures makes the pictures of the overview in docs/console.md, TestRepair the others: a service with ordinary names, some traffic and some trouble.
func TestPictures(t *testing.T) {
	t.Parallel()
	sc := newScene(t, "SERVICE", "wms-cincout", "MAX_RETRIES", "2", "RETRY_DELAY", "200ms")
	sc.name = "wms-cincout"
	sc.run()
	b := sc.open()
	pace := time.Duration(0)
	if shots != "" { // the curves of the pictures take their time
		pace = time.Second
	}
	b.until("#state-title", "Consuming")
	for second := range 12 {
		for i := range 20 + second%4*7 {
			id := fmt.Sprintf("order-%d", 4700+40*second+i)
			key := "order.created"
			switch {
			case i == 3 || i == 4 && second%2 == 0:
				sc.app.answer(id, answer{status: 503, problem: `{"type":"https://errors.example/database-away","title":"Database is away","detail":"no connection to orders-db within 5 s"}`})
			case i == 5 && second%3 == 0:
				sc.app.answer(id, answer{status: 422, problem: `{"type":"https://errors.example/unknown-sku","title":"Unknown article","detail":"no article 9120-44"}`})
				key = "order.changed"
			case i == 6 && second == 4:
				sc.app.on(id, 500)
				key = "order.cancelled"
			case i == 7 && second%3 == 1:
				sc.app.answer(id, answer{status: 502, once: true})
			}
			sc.publish(key, message(id))
		}
		time.Sleep(pace)
	}
	b.until("#depth", "23 parked")
	b.shot("docs-overview")
	b.phone("docs-phone")
}
