package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"sidecar/internal/testkit/must"
)

func numbered(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s-%02d", prefix, i)
	}
	return list
}

// TestCanary: three go ahead. When they fail again the rest stays; TestRepair has those that succeed.
func TestCanary(t *testing.T) {
	t.Parallel()
	sc := newScene(t).run()
	ids := numbered("order", 8)
	sc.park(500, "order.created", ids...)
	b := sc.open()
	b.follow("Read the queue", "8 messages in 1 group")
	b.click("Redrive all …")
	b.until("#act-count", "8 messages of 8")
	if got := eval[string](b, `document.querySelector("#act-canary").value`); got != "3" {
		t.Errorf("a canary of %q is offered", got)
	}
	b.click("Redrive 8 messages")
	b.until("#operation", "Redrive stopped", "The rest was not touched", "park")
	b.inspect("canary-bad")
	sc.parked(8)
	tried := 0
	for _, id := range ids {
		tried += sc.app.seen(id) - 1
	}
	if tried == 0 || tried > 3 {
		t.Errorf("%d messages were tried", tried)
	}
	b.click("Close")
	b.click("Earlier operations")
	b.until("#earlier", "Redrive stopped")
	b.until("#view h3", "8 messages")
}

// TestProgressAndCancel: an operation is to be seen while it goes on, also one that another process has begun, and ends
// when it is cancelled. It can be opened by its address, also afterwards.
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
	if code, body := sc.call(http.MethodPost, "/dlq/redrive", `{"all":true,"rate":"0.05/s"}`); code != http.StatusAccepted {
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

	b.follow("Details", "Operation ")
	b.until("#view", "0.05/s")
	b.inspect("operation")
	b.reload()
	b.until("#operation h3", "Redriving")
	b.until("#view", "Redriving")
	b.click("Cancel")
	b.until("#view", "Redrive cancelled")
	b.reload()
	b.until("#operation", "Redrive cancelled")
	b.inspect("cancelled")
	// The queue counts a message that is on its way to the operation only when it is back.
	redriven := eval[float64](b, `Number(document.querySelector("#operation").textContent.match(/(\d+) redriven/)[1])`)
	left := len(ids) - int(redriven)
	eventually(t, "the others are back", func() bool { return sc.ready(sc.dlq()) == left })
	if left == 0 || left == len(ids) {
		t.Errorf("%d of %d are left", left, len(ids))
	}
	b.expect("404")
	b.visit("#/dlq/operations/0000")
	b.until("#view", "keeps its last 20 operations")
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
	b.follow("Cancel", "9 messages")
	rest := 0
	sc.flow(func([]byte) bool { rest++; return rest == 6 })
	if seen := eval[[]string](b, "depths"); slices.ContainsFunc(seen, func(s string) bool { return s != "8 parked" && s != "9 parked" }) {
		t.Errorf("the page said %q", seen)
	}
}

// TestFilter: conditions choose what is shown and what is acted on; what makes no sense is said. The limit, the rate and
// fresh attempts of the dialog reach the request.
func TestFilter(t *testing.T) {
	t.Parallel()
	sc := newScene(t).run()
	sc.fillQueue(kind{key: "order.created", id: "order", status: 500, count: 105})
	sc.park(422, "stock.moved", "stock-1", "stock-2")
	b := sc.open()
	b.follow("Read the queue", "107 messages in 2 groups")
	b.click("Filter")
	b.fill("#f-status", "4xx")
	b.fill("#f-key", "stock.*")
	b.follow("Apply", "2 messages in 1 group")
	b.inspect("filter")
	b.click("Redrive …")
	b.until("#act-count", "2 messages of 107")
	b.click("Close")
	b.fill("#f-status", "nonsense")
	b.expect("400")
	b.click("Apply")
	b.until("#view", "nonsense")
	b.follow("Clear", "107 messages in 2 groups")

	b.open("500")
	b.until("#view", "The first 100 messages")
	b.click("Show up to 1,000")
	b.until("#view", "500: 105 messages")

	b.click("Redrive …")
	b.until("#act-count", "105 messages of 107")
	b.fill("#act-limit", "-1")
	b.click("Redrive 105 messages")
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
	got := kept.Operations[0].Request
	delete(got, "filter")
	if want := map[string]any{"limit": 2.0, "rate": "50/s", "reset": true}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("asked for %v, want %v", got, want)
	}
	if !kept.Operations[1].DryRun {
		t.Error("nothing was counted before")
	}
}
