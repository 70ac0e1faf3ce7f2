package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// kind is a number of messages that failed in the same way.
type kind struct {
	key, id string
	status  int
	answer  string // %d is the number of the message
	err     string // without a status
	count   int
}

// fillQueue parks messages as the sidecar does, without the app: its breaker would hold so many failures.
func (sc *scene) fillQueue(kinds ...kind) {
	sc.t.Helper()
	ch := brokertest.Channel(sc.t, sc.url())
	n := max(sc.ready(sc.dlq()), 0)
	for _, k := range kinds {
		for i := range k.count {
			m := message(fmt.Sprintf("%s-%03d", k.id, i))
			m.CorrelationId = fmt.Sprintf("cart-%s-%d", k.id, i)
			m.Headers = amqp.Table{
				"x-original-queue": sc.queue(), "x-original-exchange": sc.exchange(), "x-original-routing-key": k.key,
				"x-final-reason": "max_retries", "x-final-retry-count": int32(i % 7), "x-final-status-code": int32(k.status), //nolint:gosec // both are small
				"x-final-at": time.Now().Add(-time.Duration(i) * time.Minute).UTC().Format(time.RFC3339Nano),
			}
			if k.status == 0 {
				delete(m.Headers, "x-final-status-code")
				m.Headers["x-final-error"] = k.err
			}
			if k.answer != "" {
				m.Headers["x-final-answer"] = strings.ReplaceAll(k.answer, "%d", fmt.Sprint(i))
			}
			brokertest.Publish(sc.t, ch, "", sc.dlq(), m)
			n++
		}
	}
	sc.parked(n)
}

func (b *tab) hash() string { return eval[string](b, "location.hash") }

func (b *tab) back() { eval[bool](b, "(history.back(), true)") }

// visit opens an address of the page as a bookmark does.
func (b *tab) visit(hash string) {
	b.t.Helper()
	eval[bool](b, "(location.href = "+quote(b.origin+"/"+hash)+", true)")
}

func (b *tab) reload() {
	b.t.Helper()
	b.do(chromedp.Reload())
	b.until("#link", "Live")
}

// TestPlaces: every view has an address, with which Back, a reload and a bookmark lead to it; Back takes no message from
// the queue.
func TestPlaces(t *testing.T) {
	t.Parallel()
	sc := newScene(t).run()
	sc.fillQueue(kind{key: "order.created", id: "order", status: 503, count: 60}, kind{key: "stock.moved", id: "stock", status: 422, count: 3})
	b := sc.open()
	b.until("#link", "Live")
	b.when("the title of the overview", `document.title === "Consuming · `+sc.name+`"`)
	first := `[...document.querySelectorAll("#content > section")].find((s) => s.checkVisibility()).id === `
	b.do(chromedp.EmulateViewport(390, 844))
	b.when("the dead letters first on a phone", first+`"parked"`)
	b.fits("overview on a phone")
	b.do(chromedp.EmulateViewport(1280, 900))
	b.when("the state first on a wide screen", first+`"state"`)
	b.click("Topology")
	b.until("#topology-tables", "Bindings")
	if b.visible("#flow") || b.focused() == "BODY: " {
		t.Errorf("the topology shows the flow, or the focus is on %q", b.focused())
	}
	b.when("the title of the topology", `document.title.startsWith("Topology · Consuming")`)
	b.inspect("topology")
	b.back()
	b.when("the overview", `location.hash === "" && document.querySelector("#flow").checkVisibility()`)
	if n := b.asked("/dlq/groups"); n > 0 {
		t.Errorf("%d reads of the queue that the user did not ask for", n)
	}

	b.follow("Read the queue", "63 messages in 2 groups")
	b.read("503", "60 messages")
	group := b.hash()
	if !strings.HasPrefix(group, "#/dlq/messages?group=") {
		t.Errorf("the address of a group is %s", group)
	}
	b.press(`document.querySelector("[data-sort=retries]")`)
	b.when("the order", `document.querySelector("th.retries").ariaSort === "descending" && document.querySelector("tbody .retries").innerText === "6"`)
	if got := b.focused(); !strings.Contains(got, "Retries") {
		t.Errorf("the table is sorted, the focus is on %q", got)
	}
	b.read("order-041", "order-041")
	b.when("the title of a message", `document.title.startsWith("order-041 · Consuming")`)
	address := b.hash()
	groups, lists := b.asked("/dlq/groups"), b.asked("/dlq/messages")
	b.back()
	b.until("#view h3", "60 messages")
	if got := b.focused(); !strings.Contains(got, "order-041") {
		t.Errorf("the way back leads to %q", got)
	}
	if y := eval[float64](b, "scrollY"); y == 0 {
		t.Error("the list begins at its head again")
	}
	b.back()
	b.until("#view h3", "63 messages in 2 groups")
	eval[bool](b, "(history.forward(), true)")
	b.until("#view h3", "60 messages")
	b.when("the same order", `document.querySelector("th.retries").ariaSort === "descending"`)
	if b.asked("/dlq/groups") != groups || b.asked("/dlq/messages") != lists {
		t.Error("Back has read the queue")
	}

	for hash, want := range map[string]string{
		group + "&sort=-size": "60 messages", address: "order-041", "#/dlq?status=4xx": "3 messages in 1 group",
		"#/dlq/messages/0000000000000000": "The message is not in the queue", "#/nothing": "There is no such page",
		"#/dlq?colour=red": "The queue could not be read",
	} {
		b.expect("404", "400")
		b.visit(hash)
		b.until("#view h3", want)
		b.reload()
		b.until("#view h3", want)
		if got := b.hash(); got != hash {
			t.Errorf("%s became %s", hash, got)
		}
	}
	b.visit("#/dlq/messages?status=4xx")
	b.until("#view h3", "3 messages")
	b.press(`document.querySelector(".chips a")`)
	b.until("#view h3", "63 messages")
}

// TestTypedStays: no event changes what is being typed, what is open or what is selected.
func TestTypedStays(t *testing.T) {
	t.Parallel()
	sc := newScene(t).run()
	sc.fillQueue(kind{key: "order.created", id: "order", status: 503, count: 12})
	b := sc.open()
	b.click("1 thing that may surprise")
	b.follow("Read the queue", "12 messages in 1 group")
	b.click("Filter")
	b.fill("#f-status", "5x")
	b.fill("#search", "half a wo")

	// What an operation of another client and a change of the state bring.
	if code, body := sc.call(http.MethodPost, "/dlq/redrive", `{"all":true,"limit":2}`); code != http.StatusAccepted {
		t.Fatalf("%d %s", code, body)
	}
	b.until("#view h3", "10 messages in 1 group")
	sc.call(http.MethodPost, "/pause", "")
	b.until("#state-title", "Paused")
	sc.call(http.MethodPost, "/resume", "")
	b.until("#state-title", "Consuming")
	typed := `[document.querySelector("#f-status").value, document.querySelector("#search").value, document.activeElement.id,
		document.querySelector("#filter-box").open, document.querySelector("#warnings").open].join()`
	if got := eval[string](b, typed); got != "5x,half a wo,search,true,true" {
		t.Errorf("after the events: %s", got)
	}
	// A click on a group keeps it too.
	b.read("503", "10 messages")
	if got := eval[string](b, typed); !strings.HasPrefix(got, "5x,half a wo,") {
		t.Errorf("after a link: %s", got)
	}

	// A message that is being read stays, with its body.
	b.open("order-005")
	b.click("Show body")
	b.until("#view .body pre", "order-005")
	eval[bool](b, `(getSelection().selectAllChildren(document.querySelector("#view .body pre")), true)`)
	if code, body := sc.call(http.MethodPost, "/dlq/redrive", `{"all":true,"limit":1}`); code != http.StatusAccepted {
		t.Fatalf("%d %s", code, body)
	}
	b.until("#changed", "An operation has ended")
	if got := eval[string](b, "getSelection().toString()"); !strings.Contains(got, "order-005") {
		t.Errorf("selected is %q", got)
	}
	b.inspect("changed")

	b.back()
	b.until("#view h3", "503")
	// In a dialog the number that is offered for the canary gives way to what was typed while it counted.
	hold := brokertest.Channel(t, brokertest.URL(t))
	<-must.Get(hold.Consume(sc.dlq(), "other", false, false, false, false, nil))(t)
	b.expect("409")
	b.click("Redrive …")
	b.until("#act-problem", "in use")
	b.fill("#act-canary", "7")
	b.fill("#act-rate", "2")
	must.Do(t, hold.Close())
	eventually(t, "the queue is free", func() bool { return sc.ready(sc.dlq()) == 9 })
	b.click("Count again")
	b.until("#act-count", "9 messages of 9")
	if got := eval[string](b, `document.querySelector("#act-canary").value + document.querySelector("#act-rate").value`); got != "72" {
		t.Errorf("the fields of the dialog: %s", got)
	}
}
