package console

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestKeyboard walks from the group to the message, to its body, and to its redrive, without a mouse.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	sc := newScene(t).run()
	sc.app.answer("order-1", answer{status: 503, problem: `{"type":"https://errors.example/db","title":"Database is away","detail":"after 5 s"}`})
	sc.publish("order.created", message("order-1"))
	sc.parked(1)
	sc.park(422, "order.cancelled", "order-2")
	b := sc.open()
	b.until("#depth", "2 parked")

	b.keys(kb.Tab)
	if got := b.focused(); !strings.Contains(got, "Skip") {
		t.Errorf("the first Tab leads to %q", got)
	}
	b.tabTo("#look")
	b.keys(kb.Enter)
	b.until("#view h3", "2 messages in 2 groups")
	b.until("#view", "https://errors.example/db")
	if got := b.focused(); !strings.Contains(got, "2 messages in 2 groups") {
		t.Errorf("the groups are there, the focus is on %q", got)
	}
	b.inspect("groups")
	b.tabTo("a.open")
	for !strings.Contains(b.focused(), "errors.example") {
		b.tabTo("a.open")
	}
	b.keys(kb.Enter)
	b.until("#view", "order-1")
	if got := b.focused(); !strings.Contains(got, "1 message") {
		t.Errorf("the list is there, the focus is on %q", got)
	}
	b.inspect("list")
	b.tabTo("a.open")
	b.keys(kb.Enter)
	b.until("#view h3", "order-1")
	b.until("#view", "Database is away", "x-final-status-code")
	if strings.Contains(b.text("#view"), `"id"`) {
		t.Error("the body is shown although the user has not asked for it")
	}
	b.tabTo("#show-body")
	b.keys(kb.Enter)
	b.until("#view .body pre", `"id": "order-1"`)
	if got := b.focused(); !strings.Contains(got, "JSON") {
		t.Errorf("the body is there, the focus is on %q", got)
	}
	b.inspect("message")

	sc.app.on("order-1", 0)
	b.tabTo("#view nav li:last-child a", chromedp.KeyModifiers(kb.ModifierShift))
	b.keys(kb.Enter)
	b.until("#view h3", "503")
	b.tabTo("#view .actions .primary")
	b.keys(kb.Enter)
	b.until("dialog[open]", "Redrive 1 message")
	b.inspect("redrive")
	b.tabTo("#act-go")
	b.keys(kb.Enter)
	b.until("#operation", "Redrive finished", "1 of 1 redriven")
	if got := b.focused(); !strings.Contains(got, "Redrive finished") {
		t.Errorf("it is over, the focus is on %q", got)
	}
	b.inspect("finished")
	sc.parked(1)
	eventually(t, "the app has it", func() bool { return sc.app.seen("order-1") == 2 })
	// The list has been read again; the group is empty now.
	b.until("#view h3", "No message matches")
}
