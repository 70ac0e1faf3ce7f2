package console

import (
	"net/http"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// TestPage: what flows is on the screen by itself, and nothing has read the dead-letter queue for it.
func TestPage(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "1").run()
	b := sc.open()
	b.until("#state-title", "Consuming")
	b.until("#link", "Live")
	res := must.Get(http.Get(b.origin + "/"))(t)
	_ = res.Body.Close()
	if got := res.Header.Get("Content-Security-Policy"); got != policy {
		t.Errorf("the policy of the page is %q", got)
	}
	if got := b.text("h1"); got != sc.name {
		t.Errorf("the page is about %q", got)
	}
	for i := range 30 {
		id := "m" + string(rune('a'+i))
		if i%10 == 0 {
			sc.app.on(id, 503)
		}
		sc.publish("order.created", message(id))
	}
	// Three failed twice each: a retry, then parked.
	b.until("#rates", "27 in all", "3 in all")
	b.until("#depth", "3 parked")
	b.until("#drawing", sc.dlq())
	for _, want := range []string{sc.exchange(), sc.queue(), "retry queue · waits 200ms", "dead-letter queue"} {
		if !strings.Contains(b.text("#drawing"), want) {
			t.Errorf("the drawing lacks %q: %q", want, b.text("#drawing"))
		}
	}
	eventually(t, "the drawn depth", func() bool { return strings.TrimSpace(b.text("#drawing .dlq .depth")) == "3" })
	if label := eval[string](b, `document.querySelector("#rates svg").getAttribute("aria-label")`); !strings.Contains(label, "ack: now ") {
		t.Errorf("the first curve is called %q", label)
	}
	b.click("The same as tables")
	b.until("#topology-tables", "dead-letter queue")
	b.click("1 thing that may surprise")
	b.inspect("flow")
	for _, path := range []string{"/dlq", "/dlq/groups", "/dlq/messages"} {
		if n := b.asked(path); n > 0 {
			t.Errorf("%d requests for %s without being asked for", n, path)
		}
	}
	if n := b.asked("/events"); n != 1 {
		t.Errorf("%d streams of events", n)
	}
}

// TestPageWithoutAQueue: a sidecar that only sends has neither an app nor a queue, and the page shows none.
func TestPageWithoutAQueue(t *testing.T) {
	t.Parallel()
	b := newScene(t).with("CONSUME", "off", "PUBLISH_ADDR", "127.0.0.1:0").start().open()
	b.until("#state-title", "Publishing")
	b.until("#facts", "connected")
	if text := b.text("main"); strings.Contains(text, "NaN") || strings.Contains(text, "no connection") || strings.Contains(text, "answer") {
		t.Errorf("the page says:\n%s", text)
	}
	for _, gone := range []string{"#queue", "#pause", "#rates", "#topology", "#parked", "#views"} {
		if b.visible(gone) {
			t.Errorf("%s is shown", gone)
		}
	}
	b.axe("a sidecar that only sends")
	b.click("Drain …")
	b.click("Drain")
	b.until("#state-title", "Drained")
}

// TestQueueThatDelays: the queue in which retries wait is drawn once, and says how long.
func TestQueueThatDelays(t *testing.T) {
	t.Parallel()
	brokertest.Delaying(t)
	sc := newScene(t).with("TOPOLOGY", "native", "RETRY_DELAY", "", "RETRY_DELAYS", "1s,5m").run()
	b := sc.open()
	b.until("#drawing", "queue · retries wait in it, 1s to 5m0s")
	if text := b.text("#drawing"); strings.Contains(text, "retry queue") || strings.Count(text, sc.queue()) != 1 {
		t.Errorf("the drawing is %q", text)
	}
	b.until("#facts", "0 as far as this replica knows", "0, after 1s, 5m0s")
	b.click("The same as tables")
	b.until("#topology-tables", "the service’s queue, waits 1s to 5m0s")
}

// TestDeletedQueueIsShown for an hour: the state is not good, although everything is there again.
func TestDeletedQueueIsShown(t *testing.T) {
	t.Parallel()
	b := newScene(t).with("SUBSCRIPTIONS", "one,two", "SUB_ONE_QUEUE", "one", "SUB_TWO_QUEUE", "two").run().open()
	b.until("#state-title", "Consuming")
	must.Get(brokertest.Channel(t, brokertest.URL(t)).QueueDelete("one", false, false, false))(t)
	b.until("#state-title", "Consuming; messages may be lost")
	b.until("#state-lines", `queue "one" was deleted and declared again`, "Messages may be lost since")
	b.until("#subscriptions-table", "Messages may be lost")
	b.visit("#/subscriptions/one")
	b.until("#state-title", "Consuming; messages may be lost")
	b.visit("#/subscriptions/two")
	b.until("#queue", "two")
	b.when("the page of two is good", `document.querySelector("#state-title").innerText === "Consuming" &&
		document.querySelector("#state").dataset.tone === "good"`)
	if lines := b.text("#state-lines"); strings.Contains(lines, "deleted") {
		t.Errorf("the page of two shows %q", lines)
	}
}

// TestTopologies: several exchanges and retry queues can be drawn, on any screen, and the drawing names its queues with their depths.
func TestTopologies(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{
		"topic-tiers": {"RETRY_DELAYS", "300ms,500ms,700ms", "RETRY_DELAY", "", "MAX_RETRIES", "3"},
		"dead-letter": {"QUEUE", "own", "BINDINGS", "ex:order.*,ex:stock.*"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t, "TOPOLOGY", name).with(env...)
			declareTopic(t, "ex")
			sc.run()
			var plan struct{ Queues []struct{ Name string } }
			sc.get("/topology", &plan)
			b := sc.open()
			b.until("#preset", name)
			b.until("#drawing", "dead-letter queue")
			for _, q := range plan.Queues {
				if !strings.Contains(eval[string](b, `[...document.querySelectorAll("#drawing title")].map((e) => e.textContent).join(" ")`), q.Name) {
					t.Errorf("%s is not drawn", q.Name)
				}
			}
			eventually(t, "a depth for each queue", func() bool {
				return eval[string](b, `[...document.querySelectorAll("#drawing .depth")].map((e) => e.textContent).join("")`) == strings.Repeat("0", len(plan.Queues))
			})
			b.inspect("topology-" + name)
		})
	}
}

// declareTopic makes an exchange that a binding needs and that the sidecar does not declare.
func declareTopic(t *testing.T, name string) {
	t.Helper()
	ch := brokertest.Channel(t, brokertest.URL(t))
	must.Do(t, ch.ExchangeDeclare(name, amqp.ExchangeTopic, true, false, false, false, nil))
}

// TestPauseResumeDrain: the buttons do what they say, and the state says its outcome.
func TestPauseResumeDrain(t *testing.T) {
	t.Parallel()
	sc := newScene(t).run()
	b := sc.open()
	b.until("#state-title", "Consuming")
	b.click("Pause")
	b.until("#state-title", "Paused: by an operator")
	b.until("#state-lines", "operator since")
	sc.become("paused")
	b.inspect("paused")
	b.click("Resume")
	b.until("#state-title", "Consuming")
	sc.become("consuming")

	b.click("Drain …")
	b.until("dialog[open]", "There is no way back")
	b.inspect("drain")
	b.click("Keep it running")
	eventually(t, "the focus on the button again", func() bool { return strings.HasPrefix(b.focused(), "drain:") })
	if s := sc.state(); s != "consuming" {
		t.Fatalf("it is %s although the user did not confirm", s)
	}
	b.click("Drain …")
	b.click("Drain")
	b.until("#state-title", "Drained")
	if b.visible("#pause") || b.visible("#drain") {
		t.Error("what is over can still be pressed")
	}
}

// TestNoDeadLetterQueue: the page says that there is none.
func TestNoDeadLetterQueue(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	declareTopic(t, "ex")
	sc.with("TOPOLOGY", "dead-letter", "QUEUE", "own", "BINDINGS", "ex:order.*", "DEAD_LETTER", "disabled").run()
	b := sc.open()
	b.until("#parked", "no dead-letter queue")
	if b.visible("#look") {
		t.Error("there is a button to read no queue")
	}
}
