package console

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

// parkOf parks messages of a subscription.
func (sc *scene) parkOf(subscription string, n int) {
	sc.t.Helper()
	ch, dlq := brokertest.Channel(sc.t, sc.url()), sc.dlq()+"."+subscription
	for i := range n {
		m := message(fmt.Sprintf("%s-%d", subscription, i))
		m.Headers = amqp.Table{
			"x-original-queue": sc.queue() + "." + subscription, "x-original-routing-key": subscription + ".created",
			"x-final-reason": "max_retries", "x-final-status-code": int32(503),
		}
		brokertest.Publish(sc.t, ch, "", dlq, m)
	}
	eventually(sc.t, "the messages are parked", func() bool { return sc.ready(dlq) == n })
}

// TestSubscriptions: the overview has all subscriptions, and each has a page with an address of its own, from which it
// is paused and its dead letters are redriven.
func TestSubscriptions(t *testing.T) {
	t.Parallel()
	sc := newScene(t, "SUBSCRIPTIONS", "orders,refunds,returns").run()
	sc.parkOf("orders", 3)
	sc.parkOf("refunds", 2)
	b := sc.open()
	b.until("#state-title", "Consuming")
	row := func(name string) string {
		return `[...document.querySelectorAll("#subscriptions tbody tr")].find((r) => r.innerText.startsWith("` + name + `")).innerText`
	}
	b.when("the dead letters of orders", row("orders")+`.replace(/\s+/g, " ").startsWith("orders Consuming 0 3 0 of 10")`)
	b.when("no dead letters of returns", row("returns")+`.replace(/\s+/g, " ").startsWith("returns Consuming 0 0")`)
	b.until("#depth", "5 parked")
	for _, selector := range []string{"#topology", "#views-topology", "#views-overview"} {
		if b.visible(selector) {
			t.Errorf("the overview of all shows %s", selector)
		}
	}
	if code, body := sc.call(http.MethodPost, "/pause?subscription=refunds", ""); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	b.until("#state-title", "Partly paused")
	b.until("#state-lines", "1 of 3 queues is not consumed", "refunds: operator")
	b.when("the pause of refunds", row("refunds")+`.includes("operator")`)
	b.inspect("subscriptions")
	b.phone("subscriptions-phone")

	b.follow("Read the queue", "5 messages in 2 groups")
	b.until("#view", "Redrive, discard and export are on the page of each queue")
	b.when("the subscription of each group", `[...document.querySelectorAll("td.of")].map((e) => e.innerText).join() === "orders,refunds"`)
	b.inspect("groups of subscriptions")
	b.visit("#/")

	b.open("orders")
	b.when("the page of orders", `location.hash === "#/subscriptions/orders" && document.title === "Consuming · orders · `+sc.name+`"`)
	b.until("#depth", "3 parked")
	b.until("#queue", sc.queue()+".orders")
	b.until("#drawing", "dead-letter queue")
	if b.visible("#subscriptions") || b.visible("#drain") || b.visible("#rates") || !b.visible("#facts") {
		t.Error("the page of a subscription shows what is of all")
	}
	b.click("Pause")
	b.until("#state-title", "Paused: by an operator")
	b.inspect("subscription")
	b.reload()
	b.until("#state-title", "Paused: by an operator")
	b.click("Resume")
	b.until("#state-title", "Consuming")
	if state := sc.state(); state != "consuming" {
		t.Errorf("state %s", state)
	}
	b.click("Topology")
	b.when("the topology of orders", `location.hash === "#/subscriptions/orders/topology"`)
	b.until("#topology-tables", sc.dlq()+".orders")
	b.reload()
	b.until("#topology-tables", sc.dlq()+".orders")

	b.press(`document.querySelector("#views-dlq")`)
	b.until("#view h3", "3 messages in 1 group")
	b.click("Redrive all …")
	b.until("#act-count", "3 messages of 3 in the queue")
	b.fill("#act-canary", "0")
	b.click("Redrive 3 messages")
	b.until("#operation", "Redrive finished") // reads are refused until then, and the count is complete before that
	b.until("#operation", "3 of 3 redriven")
	eventually(t, "the app has them", func() bool { return sc.app.seen("orders-2") == 1 })
	if n := sc.ready(sc.dlq() + ".refunds"); n != 2 {
		t.Errorf("%d messages of refunds are parked", n)
	}

	b.visit("#/subscriptions/refunds/dlq?status=503")
	b.until("#view h3", "2 messages in 1 group")
	b.reload()
	b.until("#view h3", "2 messages in 1 group")
	b.until("#state-title", "Paused: by an operator")
	b.read("503", "2 messages")
	b.read("refunds-1", "refunds-1")
	b.click("Show body")
	b.until("#view .body pre", "refunds-1")
	b.expect("404")
	b.visit("#/subscriptions/nothing/dlq")
	b.until("#view h3", "There is no such page")
	b.click("Overview")
	b.when("the overview", `document.querySelector("#subscriptions").checkVisibility()`)
	b.click("Pause all")
	b.until("#state-title", "Nothing is consumed")
	b.click("Resume all")
	b.until("#state-title", "Consuming")
	b.do(chromedp.EmulateViewport(390, 844))
	b.fits("overview on a phone")
	b.do(chromedp.EmulateViewport(1280, 900))
	b.when("the state first again", `[...document.querySelectorAll("#content > section")].map((s) => s.id).slice(0, 3).join() === "state,subscriptions,parked"`)
}
