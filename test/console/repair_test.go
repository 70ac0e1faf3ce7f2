package console

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// downloads lets the page keep files, in a directory of the test.
func (b *tab) downloads() (dir string) {
	b.t.Helper()
	dir = b.t.TempDir()
	c := chromedp.FromContext(b.ctx)
	must.Get(cdp.Call(b.ctx, c.Browser, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
		Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: dir, BrowserContextID: c.BrowserContextID,
	}))(b.t)
	return dir
}

// exported waits until the file of an export has so many lines.
func (sc *scene) exported(dir string, lines int) string {
	sc.t.Helper()
	var file string
	eventually(sc.t, "the exported file", func() bool {
		data, _ := os.ReadFile(filepath.Join(dir, sc.dlq()+".jsonl"))
		file = string(data)
		return strings.Count(file, "\n") == lines
	})
	return file
}

// TestRepair is docs/console.md, step by step: 500 messages of five kinds are parked, and with the page alone each kind is
// understood and gets what repairs it. Its pictures are those of that page.
func TestRepair(t *testing.T) {
	t.Parallel()
	sc := newScene(t, "SERVICE", "wms-cincout")
	sc.name = "wms-cincout"
	sc.run()
	brokertest.Queue(t, sc.url(), "wms.queue.wms-tenants", nil)
	sc.fillQueue(
		kind{key: "order.created", id: "order", status: 503, count: 300, answer: `{"error":"warehouse closed until 06:%d"}`},
		kind{key: "customer.changed", id: "customer", status: 500, count: 120,
			answer: `{"detail":"IntegrityError: duplicate key value violates unique constraint \"customers_email_key\": (email)=('c%d@example.com') already exists"}`},
		kind{key: "tenant.opened", id: "tenant", status: 404, count: 50, answer: `{"message":"no route for tenant %d in this service"}`},
		kind{key: "invoice.print", id: "invoice", err: "timeout: the app did not answer in time", count: 20},
		kind{key: "order.cancelled", id: "cancel", status: 422, count: 10, answer: `{"title":"unknown article 9120-%d"}`},
	)
	b := sc.open()
	dir := b.downloads()
	b.until("#depth", "500 parked")

	// 1. What fails: five groups.
	b.follow("Read the queue", "500 messages in 5 groups")
	b.inspect("repair-groups")
	b.shot("docs-groups")

	// 2. Why: the answer of one message. These were processed before: a copy, then a discard.
	b.fill("#search", "customers_email_key")
	b.follow("Search", "The first 100 messages")
	b.window("docs-search", "header")
	b.follow("Groups", "120 messages in 1 group")
	b.read("IntegrityError: duplicate key", "The first 100 messages")
	b.open("customer-000")
	b.until("#view .answer", "already exists")
	b.window("docs-message", "header")
	b.scheme("dark")
	b.phone("docs-message-phone")
	b.scheme("light")
	b.back()
	b.until("#view h3", "The first 100 messages")
	b.click("Export")
	if file := sc.exported(dir, 120); !strings.Contains(file, `"customer-119"`) || strings.Contains(file, `"order-001"`) {
		t.Errorf("the export: %.500s", file)
	}
	b.click("Discard …")
	b.until("#act-count", "120 messages of 500")
	b.fill("#act-confirm", sc.queue())
	b.click("Discard 120 messages")
	b.until("#act-problem", "Type "+sc.dlq())
	b.inspect("discard")
	b.fill("#act-confirm", sc.dlq())
	b.click("Discard 120 messages")
	b.until("#operation", "120 of 120 discarded")
	b.until("#view h3", "No message matches")
	b.click("Close")

	// 3. The warehouse is open again: three go first.
	b.follow("Dead letters 380", "380 messages in 4 groups")
	b.read("warehouse closed", "The first 100 messages")
	b.until("#view .messages", "warehouse closed until 06:1")
	b.click("Redrive …")
	b.until("#act-count", "300 messages of 380")
	b.inspect("repair-dialog")
	b.shot("docs-redrive")
	b.fill("#act-rate", "100")
	b.click("Redrive 300 messages")
	b.until("#operation", "The rest follows")
	b.window("docs-progress", "header")
	b.until("#operation", "300 of 300 redriven", "3 good, 0 bad. The rest followed")
	b.inspect("canary-good")
	b.click("Close")

	// 4. Another service's messages: to its queue.
	b.follow("Dead letters 80", "80 messages in 3 groups")
	b.read("no route for tenant", "50 messages")
	b.click("Redrive …")
	b.until("#act-count", "50 messages of 80")
	b.fill("#act-to", "wms.queue.wms-tenants")
	b.shot("docs-to")
	b.click("Redrive 50 messages")
	b.until("#operation", "50 of 50 redriven")
	b.click("Close")
	if n := sc.ready("wms.queue.wms-tenants"); n != 50 {
		t.Errorf("%d messages in the other queue", n)
	}

	// 5. One order that a customer asks about, then the rest of its group and the timeouts.
	b.fill("#search", "cart-cancel-7")
	b.follow("Search", "1 message")
	b.open("cancel-007")
	b.until("#view .answer", "unknown article 9120-7")
	b.click("Redrive …")
	b.click("Redrive 1 message")
	b.until("#operation", "1 of 1 redriven")
	b.until("#changed", "has ended")
	b.click("Close")
	b.visit("#/dlq")
	b.until("#view h3", "29 messages in 2 groups")
	b.click("Redrive all …")
	b.click("Redrive 29 messages")
	b.until("#operation", "29 of 29 redriven")
	b.until("#view h3", "Nothing is parked")
	b.until("#depth", "0 parked")
	if said := b.text("#said"); !strings.Contains(said, "Redrive finished") {
		t.Errorf("screen readers announced %q", said)
	}
	sc.parked(0)
	if sc.app.seen("order-299") != 1 || sc.app.seen("customer-001") != 0 || sc.app.seen("tenant-001") != 0 || sc.app.seen("cancel-007") != 1 {
		t.Error("the app has got others than those that were redriven")
	}
}
