package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestPictures makes the pictures of docs/console.md: a service with ordinary names, some traffic and some trouble.
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
	b.click("Read the queue")
	b.until("#view h3", "23 messages in 3 groups")
	b.scheme("light")
	b.shot("docs-overview")
	b.open("database-away")
	b.until("#view table", "Place")
	b.open("order-")
	b.until("#view h3", "order-")
	b.scheme("dark")
	b.window("docs-message", "#view")
	b.do(chromedp.EmulateViewport(360, 740))
	b.fits("phone")
	b.window("docs-phone", "header")
	b.do(chromedp.EmulateViewport(1280, 900))
	b.scheme("light")

	b.press(`document.querySelector("#view nav li:last-child button")`)
	b.until("#view table", "Place")
	b.click("Redrive …")
	b.until("#act-count", "18 messages of 23")
	b.shot("docs-redrive")
	for i := range 1000 {
		sc.app.on(fmt.Sprintf("order-%d", 4700+i), 0)
	}
	b.fill("#act-rate", "4")
	b.click("Redrive 18 messages")
	b.until("#operation", "The rest follows")
	b.window("docs-progress", "#parked")
	b.until("#operation", "18 of 18 redriven")
	if text := b.text("#view"); strings.Contains(text, "could not") {
		t.Error(text)
	}
}
