package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
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
	b.until("#rates", "27 in all")
	b.until("#rates", "3 in all")
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
	b.until("#facts", "0 as far as this replica knows")
	b.until("#facts", "0, after 1s, 5m0s")
	b.click("The same as tables")
	b.until("#topology-tables", "the service’s queue, waits 1s to 5m0s")
}

// TestDeletedQueueIsShown for an hour: the state is not good, although everything is there again.
func TestDeletedQueueIsShown(t *testing.T) {
	t.Parallel()
	for _, several := range []bool{false, true} {
		t.Run(fmt.Sprintf("several %v", several), func(t *testing.T) {
			t.Parallel()
			sc := newScene(t)
			queue := sc.queue()
			if several {
				sc.with("SUBSCRIPTIONS", "one,two", "SUB_ONE_QUEUE", "one", "SUB_TWO_QUEUE", "two")
				queue = "one"
			}
			b := sc.run().open()
			b.until("#state-title", "Consuming")
			must.Get(brokertest.Channel(t, sc.url()).QueueDelete(queue, false, false, false))(t)
			b.until("#state-title", "Consuming; messages may be lost")
			b.until("#state-lines", fmt.Sprintf("queue %q was deleted and declared again", queue))
			b.until("#state-lines", "Messages may be lost since")
			if tone := eval[string](b, `document.querySelector("#state").dataset.tone`); tone != "bad" {
				t.Errorf("the tone is %q", tone)
			}
			if several {
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
		})
	}
}

// TestFiles: the page and all it loads come with the policy, whole, and only from their exact paths.
func TestFiles(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONTROL_TOKEN", "0123456789abcdef").run()
	b := sc.open()
	b.until("#token-form", "A token is needed")
	b.expect("401")
	paths := eval[[]string](b, `performance.getEntriesByType("resource").map((e) => new URL(e.name).pathname)`)
	paths = append(paths, "/")
	if len(paths) < 10 {
		t.Fatalf("the page is made of %q", paths)
	}
	for _, path := range paths {
		if path == "/events" || path == "/topology" {
			continue
		}
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			req, _ := http.NewRequest(method, "http://"+sc.control+path, nil)
			res := must.Get(http.DefaultClient.Do(req))(t)
			_ = res.Body.Close()
			h := res.Header
			kind := map[string]string{"/": "text/html", ".js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}[path[max(0, len(path)-3):]]
			if res.StatusCode != http.StatusOK || h.Get("Content-Security-Policy") != policy || !strings.HasPrefix(h.Get("Content-Type"), kind) ||
				kind == "" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s: %d %v", method, path, res.StatusCode, h)
			}
		}
	}
	for _, path := range []string{"/console", "/console/", "/index.html", "/console/index.html", "/console/../console.js", "//console.js", "/console.js/", "/%63onsole.js"} {
		if code, body := sc.call(http.MethodGet, path, ""); code != http.StatusNotFound {
			t.Errorf("GET %s: %d %s", path, code, body)
		}
	}
}

// TestTopologies: every preset can be drawn, on any screen, and the drawing names its queues with their depths.
func TestTopologies(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{
		"topic-tiers":  {"RETRY_DELAYS", "300ms,500ms,700ms", "RETRY_DELAY", "", "MAX_RETRIES", "3"},
		"per-queue":    {"EXCHANGE", "ex", "BINDINGS", "ex:order.#,ex:stock.*"},
		"delay-ladder": {"RETRY_DELAYS", "300ms,500ms,700ms", "RETRY_DELAY", "", "BINDINGS", "ex:order.#", "MAX_RETRIES", "3"},
		"dead-letter":  {"QUEUE", "own", "BINDINGS", "ex:order.*"},
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

// TestAppDown, TestUnfit, …: what is wrong is on the screen in words, with what to do.
func TestAppDown(t *testing.T) {
	t.Parallel()
	sc := newScene(t).run()
	b := sc.open()
	b.until("#state-title", "Consuming")
	sc.app.Close()
	b.until("#state-title", "Paused: the app does not answer")
	b.until("#state-lines", "refused")
	b.until("#facts", "does not answer")
	b.inspect("app-down")
}

// TestAppThatIsNotWell: an app that answers its health check is not said to be silent.
func TestAppThatIsNotWell(t *testing.T) {
	t.Parallel()
	app := apptest.Listen(t, apptest.Answer(apptest.Status(503)))
	b := newScene(t).with("APP_URL", app.URL, "APP_HEALTH_PATH", "/h").start().open()
	b.until("#state-title", "Paused: the app says that it is not well")
	b.until("#state-lines", "the app answered 503 to GET "+app.URL+"/h, not 2xx")
	b.until("#facts", "is not well")
}

func TestTopologyThatDoesNotFit(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("TOPOLOGY_MODE", "verify").start()
	b := sc.open()
	b.until("#state-title", "Topology does not fit")
	b.until("#state-lines", sc.dlq())
	b.until("#state-lines", "Fix: ")
	b.inspect("unfit")
	b.click("Read the queue")
	b.expect("404")
	b.until("#view", "does not exist")
	b.inspect("no-queue")
}

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
