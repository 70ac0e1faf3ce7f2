package console

import (
	"net/http"
	"strings"
	"testing"

	"sidecar/internal/brokertest"
)

// TestBrokerAway: the page says so, and that nothing has to be done; it goes on by itself.
func TestBrokerAway(t *testing.T) {
	sc := newScene(t)
	proxy := brokertest.NewProxy(t, brokertest.URL(t))
	sc.with("AMQP_URL", proxy.URL(t, brokertest.URL(t))).run()
	sc.park(500, "order.created", "order-1")
	b := sc.open()
	b.until("#state-title", "Consuming")
	proxy.Refuse()
	b.until("#state-title", "Broker away")
	b.until("#state-lines", "no restart is needed")
	b.until("#facts", "no connection for consuming")
	b.inspect("broker-away")
	b.expect("503")
	b.click("Look into the queue")
	b.until("#view h3", "could not be looked at")
	proxy.Restore(t)
	b.until("#state-title", "Consuming")
	b.click("Try again")
	b.until("#view h3", "1 message in 1 group")
}

// TestSidecarGone: an old picture must not look like the present, and the page finds back to a sidecar that was restarted.
func TestSidecarGone(t *testing.T) {
	sc := newScene(t).with("CONTROL_ADDR", freePort(t)).run()
	sc.park(500, "order.created", numbered("order", 9)...)
	b := sc.open()
	b.until("#state-title", "Consuming")
	b.click("Look into the queue")
	b.until("#view h3", "9 messages")
	if code, body := sc.call(http.MethodPost, "/dlq/redrive", `{"all":true,"rate":"0.1/s"}`); code != http.StatusAccepted {
		t.Fatalf("%d %s", code, body)
	}
	b.until("#operation", "Redriving")
	b.expect("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")
	sc.kill()
	b.until("#link", "Disconnected")
	b.until("#link", "Again in")
	b.until("#state-title", "No news from the sidecar")
	b.until("#state-lines", "Last seen: Consuming")
	b.inspect("disconnected")
	b.click("Pause")
	b.until("#state-problem", "does not answer")
	sc.start()
	b.until("#link", "Live")
	b.until("#state-title", "Consuming")
	b.until("#operation", "The sidecar was restarted")
}

// TestTooManyPages: the sidecar serves eight streams; the ninth page says why it has none.
func TestTooManyPages(t *testing.T) {
	sc := newScene(t).run()
	for range 8 {
		res, err := http.Get("http://" + sc.control + "/events")
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(err, res.StatusCode)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
	}
	b := sc.open()
	b.expect("503")
	b.until("#link", "Disconnected")
	b.until("#link", "at once")
	if s := b.text("#state-title"); strings.Contains(s, "Consuming") {
		t.Errorf("it says %q", s)
	}
}
