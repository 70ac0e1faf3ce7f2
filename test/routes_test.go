package test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

// uris are the targets of the requests for a message.
func (a *app) uris(id string) (all []string) {
	for _, d := range a.seen(id) {
		all = append(all, d.uri)
	}
	return all
}

func (sc *scene) wantURIs(id string, want ...string) {
	sc.t.Helper()
	sc.app.await(id, len(want))
	if got := sc.app.uris(id); strings.Join(got, " ") != strings.Join(want, " ") {
		sc.t.Errorf("%s was POSTed to %q, want %q", id, got, want)
	}
}

// TestRoutes: the routing key of the first publish decides on every attempt, and after a redrive, in every topology.
func TestRoutes(t *testing.T) {
	t.Parallel()
	for name, pairs := range map[string][]string{
		"reject":  {"QUEUE_TYPE", "classic"},
		"publish": {"QUEUE_TYPE", "quorum", "TOPOLOGY_MODE", "declare", "RETRY_DELAYS", "200ms,300ms", "RETRY_DELAY", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with(pairs...).with("MAX_RETRIES", "2", "CLOUDEVENTS", "structured")
			sc.with("APP_URL", sc.app.url()+"else?key=1",
				"ROUTES", "order.created=/orders/created, type:refund.*=/refunds/{type}, invoice.#=/{queue}/{routing_key}")
			for _, id := range []string{"order", "refund", "invoice", "other"} {
				sc.app.on(id, status(503), status(503), status(503), status(200))
			}
			s := sc.run()
			refund := message("refund")
			refund.Body = []byte(`{"data":{"type":"no"},"type":"refund.v2"}`)
			sc.publish(sc.exchange(), "order.created", message("order"))
			sc.publish(sc.exchange(), "x", refund, message("other"))
			sc.publish(sc.exchange(), "invoice.a/b c", message("invoice"))
			eventually(t, "four parked messages", func() bool { return sc.ready(sc.dlq()) == 4 })
			sc.acted("redrive", "--all")
			four := func(uri string) []string {
				return []string{uri + "?key=1", uri + "?key=1", uri + "?key=1", uri + "?key=1"}
			}
			sc.wantURIs("order", four("/orders/created")...)
			sc.wantURIs("refund", four("/refunds/refund.v2")...)
			sc.wantURIs("invoice", four("/"+sc.queue()+"/invoice.a%2Fb%20c")...)
			sc.wantURIs("other", four("/else")...)
			s.awaitAcked("order", "refund", "invoice", "other")
			for id, url := range map[string]any{"order": sc.app.url() + "orders/created", "other": nil} {
				if e := s.log.settled(id)[0]; e["url"] != url {
					t.Errorf("the log says that %s was POSTed to %v, want %v", id, e["url"], url)
				}
			}
			sc.settledAll(s, 0)
		})
	}
}

func TestRoutesOverASocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	sc := newScene(t).with("APP_URL", "unix://"+path+":/in", "ROUTES", "#.created=/created/{routing_key}")
	sc.app.down()
	sc.app.serve(l)
	s := sc.run()
	sc.publish(sc.exchange(), "order.created", message("routed"))
	sc.publish(sc.exchange(), "", message("other"))
	sc.wantURIs("routed", "/created/order.created")
	sc.wantURIs("other", "/in")
	sc.settledAll(s, 0)
}

// TestNoRoute: such a message is acked or parked without a POST. A parked one goes to its route once there is one.
func TestNoRoute(t *testing.T) {
	t.Parallel()
	for _, otherwise := range []string{"ack", "park"} {
		t.Run(otherwise, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("ROUTES", "order.created=/orders", "ROUTES_ELSE", otherwise)
			s := sc.run()
			sc.publish(sc.exchange(), "order.cancelled", message("none"))
			s.awaitOutcome("none", otherwise)
			e := s.log.settled("none")[0]
			if e.text("reason") != "no_route" || e.text("level") != map[string]string{"ack": "info", "park": "warn"}[otherwise] || e["url"] != nil {
				t.Errorf("log: %v", e)
			}
			if n := s.metric("sidecar_messages_settled_total", `reason="no_route"`, `outcome="`+otherwise+`"`); n != 1 {
				t.Errorf("%v counted", n)
			}
			if n := s.metric("sidecar_http_requests_total"); n != 0 || sc.app.total() != 0 {
				t.Errorf("%v attempts counted, %d POSTs", n, sc.app.total())
			}
			if otherwise == "ack" {
				sc.settledAll(s, 0)
				return
			}
			s.stop()
			if got := sc.listedIDs("--reason", "no_route"); len(got) != 1 {
				t.Errorf("dlq list --reason no_route: %q", got)
			}
			d := sc.take(sc.dlq(), 1)[0]
			for name, want := range map[string]any{
				"x-final-reason": "no_route", "x-final-error": "no_route: no route matches the message", "x-final-retry-count": int32(0),
				"x-original-routing-key": "order.cancelled", "x-final-status-code": nil,
			} {
				if d.Headers[name] != want {
					t.Errorf("%s is %v, want %v", name, d.Headers[name], want)
				}
			}
			sc.publish("", sc.dlq(), amqp.Publishing{MessageId: d.MessageId, Headers: d.Headers, Body: d.Body, DeliveryMode: amqp.Persistent})
			s = sc.with("ROUTES", "order.created=/orders,order.*=/{routing_key}").run()
			sc.acted("redrive", "--reason", "no_route")
			sc.wantURIs("none", "/order.cancelled")
			sc.settledAll(s, 0)
		})
	}
}

// TestWrongPathOfARoute is noticed although the other paths take every message.
func TestWrongPathOfARoute(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "1", "ROUTES", "order.#=/orders,invoice.#=/wrong/{routing_key}")
	sc.app.otherwise(func(d *delivery) answer {
		if strings.HasPrefix(d.uri, "/wrong/") {
			return status(404)
		}
		return status(200)
	})
	s := sc.run()
	sc.publish(sc.exchange(), "order.created", messages(numbered("good", 50)...)...)
	s.awaitAcked(numbered("good", 50)...)
	sc.publish(sc.exchange(), "invoice.paid", messages(numbered("bad", 500)...)...)
	eventually(t, "a pause", func() bool { return s.metric("sidecar_paused", `reason="app_rejects_all"`) == 1 })
	lines := s.log.find(func(e entry) bool { return e.is("paused") && e.text("reason") == "app_rejects_all" })
	if len(lines) != 1 || lines[0].text("url") != sc.app.url()+"wrong/invoice.paid" || lines[0]["status"] != 404.0 {
		t.Errorf("log: %v", lines)
	}
	sc.app.otherwise(func(*delivery) answer { return status(200) })
	brokertest.Eventually(t, 2*patience, "everything acked", func() bool {
		return s.metric("sidecar_messages_settled_total", `outcome="ack"`) == 550
	})
	sc.settledAll(s, 0)
}
