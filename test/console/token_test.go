package console

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"sidecar/internal/testkit/must"
)

const (
	writeToken = "write-0123456789abcdef"
	readToken  = "read-0123456789abcdef"
)

// signIn enters a token where the page asks for it.
func (b *tab) signIn(token string) {
	b.t.Helper()
	b.until("#token-form", "A token is needed")
	b.keys(token + kb.Enter)
	b.until("#state-title", "Consuming")
}

// TestToken: the page asks for it, says when it is wrong, keeps it for this tab only, and goes where the address leads to.
func TestToken(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONTROL_TOKEN", writeToken, "CONTROL_READ_TOKEN", readToken).run()
	sc.park(500, "order.created", "order-1")
	b := sc.open()
	b.expect("401", "403")
	b.until("#token-form", "A token is needed")
	b.inspect("token")
	if got := b.focused(); !strings.HasPrefix(got, "token:") {
		t.Errorf("the focus is on %q", got)
	}
	if b.visible("#content") {
		t.Error("there is something to see without a token")
	}
	b.keys("wrong" + kb.Enter)
	b.until("#token-error", "refuses this token")
	b.keys(writeToken + kb.Enter)
	b.until("#state-title", "Consuming")
	b.follow("Read the queue", "1 message")
	kept := eval[string](b, `JSON.stringify([Object.values(sessionStorage), Object.values(localStorage), document.cookie])`)
	if kept != `[["`+writeToken+`"],[],""]` {
		t.Errorf("kept: %s", kept)
	}
	if strings.Contains(eval[string](b, `document.documentElement.outerHTML + location.href`), writeToken) {
		t.Error("the token is in the page")
	}
	b.click("Forget token")
	b.until("#token-form", "A token is needed")
	if kept := eval[int](b, `sessionStorage.length`); kept != 0 {
		t.Error("it was not forgotten")
	}
	// After the token the user is where the address leads to.
	b.visit("#/dlq/messages?status=500&sort=-parked")
	b.keys(writeToken + kb.Enter)
	b.until("#view h3", "1 message")
	b.when("the order", `document.querySelector("th.parked").ariaSort === "descending"`)
}

// TestReadToken: it sees, and gets the reason why it may not act.
func TestReadToken(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONTROL_TOKEN", writeToken, "CONTROL_READ_TOKEN", readToken).run()
	sc.park(500, "order.created", "order-1")
	b := sc.open()
	b.expect("401", "403")
	b.signIn(readToken)
	b.follow("Read the queue", "1 message")
	b.click("Export")
	b.until("#view .problem", "Not exported: This token is shown no message bodies.")
	b.until("#read-only", "need the control token")
	b.open("500")
	b.read("order-1", "order-1")
	b.click("Show body")
	b.until("#view", "This token may only read")
	b.until("#read-only", "need the control token")
	if n := eval[int](b, `document.querySelectorAll("[data-writes]:not(:disabled)").length`); n > 0 {
		t.Errorf("%d buttons can still be pressed", n)
	}
	b.inspect("read-only")
	b.click("Use another token")
	b.signIn(writeToken)
	b.click("Show body")
	b.until("#view .body pre", "order-1")
}

// TestTokenChanges: a dialog that needs a new token is there again afterwards, with what was typed.
func TestTokenChanges(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(file, []byte(writeToken), 0o600))
	sc := newScene(t).with("CONTROL_TOKEN_FILE", file).start()
	b := sc.open()
	b.expect("401")
	b.signIn(writeToken)
	sc.fillQueue(kind{key: "order.created", id: "order", status: 503, count: 5})
	b.click("Read the queue")
	b.click("Redrive all …")
	b.until("#act-count", "5 messages")
	b.fill("#act-to", "some queue")
	must.Do(t, os.WriteFile(file, []byte("another-"+writeToken), 0o600))
	eventually(t, "the new token counts", func() bool {
		if b.visible("#act") {
			b.click("Redrive 5 messages")
			b.when("an answer", `document.querySelector("#act-problem").textContent !== "" || !document.querySelector("#act").open`)
		}
		return b.visible("#token-form")
	})
	b.keys("another-" + writeToken + kb.Enter)
	b.until("#act", "5 messages")
	if got := eval[string](b, `document.querySelector("#act-to").value`); got != "some queue" {
		t.Errorf("the field holds %q", got)
	}
}
