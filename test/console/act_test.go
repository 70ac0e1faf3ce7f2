package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

func numbered(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s-%02d", prefix, i)
	}
	return list
}

// TestCanary: three go ahead. When they fail again the rest stays, when they succeed it follows.
func TestCanary(t *testing.T) {
	t.Parallel()
	sc := newScene(t).run()
	ids := numbered("order", 8)
	sc.park(500, "order.created", ids...)
	b := sc.open()
	b.click("Read the queue")
	b.until("#view h3", "8 messages in 1 group")
	b.click("Redrive all …")
	b.until("#act-count", "8 messages of 8")
	if got := eval[string](b, `document.querySelector("#act-canary").value`); got != "3" {
		t.Errorf("a canary of %q is offered", got)
	}
	b.click("Redrive 8 messages")
	b.until("#operation", "Redrive stopped")
	b.until("#operation", "The rest was not touched")
	b.until("#operation", "park")
	b.inspect("canary-bad")
	sc.parked(8)
	tried := 0
	for _, id := range ids {
		tried += sc.app.seen(id) - 1
		sc.app.on(id, 0)
	}
	if tried == 0 || tried > 3 {
		t.Errorf("%d messages were tried", tried)
	}

	b.click("Close")
	b.click("Earlier operations")
	b.until("#earlier", "Redrive stopped")
	b.until("#view h3", "8 messages")
	b.click("Redrive all …")
	b.click("Redrive 8 messages")
	b.until("#operation", "Redrive finished")
	b.until("#operation", "3 good, 0 bad. The rest followed")
	b.inspect("canary-good")
	sc.parked(0)
	b.until("#view h3", "Nothing is parked")
	b.until("#depth", "0 parked")
}

// TestProgressAndCancel: an operation is to be seen while it goes on, also one that another process has begun, and ends
// when it is cancelled.
func TestProgressAndCancel(t *testing.T) {
	t.Parallel()
	sc := newScene(t).run()
	ids := numbered("order", 20)
	sc.park(500, "order.created", ids...)
	for _, id := range ids {
		sc.app.on(id, 0)
	}
	b := sc.open()
	b.until("#link", "Live")
	if code, body := sc.call(http.MethodPost, "/dlq/redrive", `{"all":true,"rate":"0.2/s"}`); code != http.StatusAccepted {
		t.Fatalf("%d %s", code, body)
	}
	b.until("#operation h3", "Redriving")
	eventually(t, "progress", func() bool { return eval[float64](b, `document.querySelector("progress").position`) > 0 })
	b.inspect("progress")

	// Whatever is asked for meanwhile is refused where it was asked for.
	b.expect("409")
	b.click("Read the queue")
	b.until("#view", "in use")
	b.inspect("in-use")

	b.click("Cancel")
	b.until("#operation", "Redrive cancelled")
	b.inspect("cancelled")
	// The queue counts a message that is on its way to the operation only when it is back.
	redriven := eval[float64](b, `Number(document.querySelector("#operation").textContent.match(/(\d+) redriven/)[1])`)
	left := len(ids) - int(redriven)
	eventually(t, "the others are back", func() bool { return sc.ready(sc.dlq()) == left })
	if left == 0 || left == len(ids) {
		t.Errorf("%d of %d are left", left, len(ids))
	}
	// What was asked for is looked up again when the operation ends.
	b.until("#view h3", fmt.Sprintf("%d messages in 1 group", left))
}

// TestHeldIsStillParked: what an operation holds has not gone, although the broker does not count it as ready.
func TestHeldIsStillParked(t *testing.T) {
	t.Parallel()
	sc := newScene(t).run()
	sc.park(500, "order.created", numbered("order", 9)...)
	b := sc.open()
	b.until("#depth", "9 parked")
	eval[bool](b, `(() => { window.depths = []; const d = document.querySelector("#depth");
		new MutationObserver(() => depths.push(d.textContent)).observe(d, { childList: true, characterData: true, subtree: true }); return true })()`)
	code, body := sc.call(http.MethodPost, "/dlq/redrive", `{"all":true,"rate":"0.01/s"}`)
	var begun struct{ ID string }
	if err := json.Unmarshal([]byte(body), &begun); err != nil || code != http.StatusAccepted {
		t.Fatalf("%d %s", code, body)
	}
	var events struct {
		Depths []struct {
			Kind  string
			Ready int
		}
	}
	low := 0 // flow events in which the broker counts less than there are
	sc.flow(func(data []byte) bool {
		must.Do(t, json.Unmarshal(data, &events))
		for _, d := range events.Depths {
			if d.Kind == "dlq" && d.Ready < 8 {
				low++
			}
		}
		return low == 4
	})
	b.click("Read the queue")
	b.expect("409")
	b.until("#view", "in use")
	b.click("Cancel")
	b.until("#view h3", "9 messages")
	rest := 0
	sc.flow(func([]byte) bool { rest++; return rest == 6 })
	if seen := eval[[]string](b, "depths"); slices.ContainsFunc(seen, func(s string) bool { return s != "8 parked" && s != "9 parked" }) {
		t.Errorf("the page said %q", seen)
	}
}

// TestOptions: the limit, the rate and fresh attempts of the dialog reach the request.
func TestOptions(t *testing.T) {
	t.Parallel()
	sc := newScene(t).run()
	ids := numbered("order", 6)
	sc.park(500, "order.created", ids...)
	b := sc.open()
	b.click("Read the queue")
	b.click("Redrive all …")
	b.until("#act-count", "6 messages")
	b.fill("#act-limit", "-1")
	b.click("Redrive 6 messages")
	b.until("#act-problem", "At most")
	b.inspect("redrive-wrong")
	b.fill("#act-limit", "2")
	b.fill("#act-rate", "50")
	b.fill("#act-canary", "0")
	b.press(`document.querySelector("#act-reset")`)
	b.click("Redrive 2 messages")
	b.until("#operation", "Redrive finished")
	var kept struct {
		Operations []struct {
			DryRun  bool `json:"dry_run"`
			Request map[string]any
		}
	}
	sc.get("/dlq/operations", &kept)
	want := map[string]any{"all": true, "limit": 2.0, "rate": "50/s", "reset": true}
	if got := kept.Operations[0].Request; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("asked for %v, want %v", got, want)
	}
	if !kept.Operations[1].DryRun {
		t.Error("nothing was counted before")
	}
}

// TestDiscard: only with the queue's name, and only what was chosen.
func TestDiscard(t *testing.T) {
	t.Parallel()
	sc := newScene(t).run()
	sc.park(500, "order.created", numbered("order", 3)...)
	sc.park(422, "stock.moved", "stock-1", "stock-2")
	b := sc.open()
	b.click("Read the queue")
	b.until("#view h3", "5 messages in 2 groups")
	b.open("422")
	b.until("#view", "stock-1")
	b.click("Discard …")
	b.until("#act-count", "2 messages of 5")
	b.fill("#act-confirm", sc.queue())
	b.click("Discard 2 messages")
	b.until("#act-problem", "Type "+sc.dlq())
	b.inspect("discard")
	b.fill("#act-confirm", sc.dlq())
	b.click("Discard 2 messages")
	b.until("#operation", "2 of 2 discarded")
	sc.parked(3)
}

// TestFilter: conditions choose what is shown and what is acted on; what makes no sense is said.
func TestFilter(t *testing.T) {
	t.Parallel()
	sc := newScene(t).run()
	sc.fillQueue(kind{key: "order.created", id: "order", status: 500, count: 105})
	sc.park(422, "stock.moved", "stock-1", "stock-2")
	b := sc.open()
	b.click("Read the queue")
	b.until("#view h3", "107 messages in 2 groups")
	b.click("Filter")
	b.fill("#f-status", "4xx")
	b.fill("#f-key", "stock.*")
	b.click("Apply")
	b.until("#view h3", "2 messages in 1 group")
	b.inspect("filter")
	b.click("Redrive …")
	b.until("#act-count", "2 messages of 107")
	b.click("Close")
	b.fill("#f-status", "nonsense")
	b.expect("400")
	b.click("Apply")
	b.until("#view", "nonsense")
	b.click("Clear")
	b.until("#view h3", "107 messages in 2 groups")

	b.open("500")
	b.until("#view", "The first 100 messages")
	b.click("Show up to 1,000")
	b.until("#view", "500: 105 messages")
}

// TestAnotherConsumerHasTheQueue: 409 is shown where it was met, and going on works when the queue is free again.
func TestAnotherConsumerHasTheQueue(t *testing.T) {
	t.Parallel()
	sc := newScene(t).run()
	sc.park(500, "order.created", "order-1")
	b := sc.open()
	b.click("Read the queue")
	b.until("#view h3", "1 message in 1 group")

	ch := brokertest.Channel(t, brokertest.URL(t))
	must.Get(ch.Consume(sc.dlq(), "other", false, false, false, false, nil))(t)
	b.expect("409")
	b.click("Redrive all …")
	b.until("#act-problem", "in use")
	b.inspect("redrive-in-use")
	must.Do(t, ch.Close())
	eventually(t, "it is given back", func() bool { return sc.ready(sc.dlq()) == 1 })
	b.click("Count again")
	b.until("#act-count", "1 message of 1")
	sc.app.on("order-1", 0)
	b.click("Redrive 1 message")
	b.until("#operation", "Redrive finished")
	sc.parked(0)
	if strings.Contains(b.text("#said"), "Redrive finished") {
		return
	}
	t.Errorf("screen readers announced %q", b.text("#said"))
}
