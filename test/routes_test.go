package test

import (
	"slices"
	"testing"
)

// wantURIs wants those targets of the requests for a message.
func (sc *scene) wantURIs(id string, want ...string) {
	sc.t.Helper()
	var got []string
	for _, d := range sc.app.await(id, len(want)) {
		got = append(got, d.Target)
	}
	if !slices.Equal(got, want) {
		sc.t.Errorf("%s was POSTed to %q, want %q", id, got, want)
	}
}

// TestRoutes: the routing key of the first publish, or the type, decides on every attempt, and after a redrive.
func TestRoutes(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "1", "CLOUDEVENTS", "structured")
	sc.with("APP_URL", sc.app.url()+"else?key=1",
		"ROUTES", "order.created=/orders/created, type:refund.*=/refunds/{type}, invoice.#=/{queue}/{routing_key}")
	for _, id := range []string{"order", "refund", "invoice", "other"} {
		sc.app.on(id, status(503), status(503), status(200))
	}
	s := sc.run()
	refund := message("refund")
	refund.Body, refund.ContentType = []byte(`{"specversion":"1.0","data":{"type":"no"},"type":"refund.v2"}`), "text/plain"
	sc.publish(sc.exchange(), "order.created", message("order"))
	sc.publish(sc.exchange(), "x", refund, message("other"))
	sc.publish(sc.exchange(), "invoice.a/b c", message("invoice"))
	eventually(t, "four parked messages", func() bool { return sc.ready(sc.dlq()) == 4 })
	sc.acted("redrive", "--all")
	for id, path := range map[string]string{
		"order": "/orders/created", "refund": "/refunds/refund.v2", "invoice": "/" + sc.queue() + "/invoice.a%2Fb%20c", "other": "/else",
	} {
		sc.wantURIs(id, path+"?key=1", path+"?key=1", path+"?key=1")
	}
	if d := sc.app.Seen("refund")[0]; d.Header.Get("Content-Type") != "application/cloudevents+json" || string(d.Body) != string(refund.Body) {
		t.Errorf("the envelope came as %s: %s", d.Header.Get("Content-Type"), d.Body)
	}
	s.awaitAcked("order", "refund", "invoice", "other")
	for id, url := range map[string]any{"order": sc.app.url() + "orders/created", "other": nil} {
		if e := s.log.settled(id)[0]; e["url"] != url {
			t.Errorf("the log says that %s was POSTed to %v, want %v", id, e["url"], url)
		}
	}
	sc.settledAll(s, 0)
}

// TestNoRoute: such a message is acked or parked without a POST. A parked one goes to its route once there is one.
func TestNoRoute(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("ROUTES", "order.created=/orders", "ROUTES_ELSE", "ack")
	s := sc.run()
	sc.publish(sc.exchange(), "order.cancelled", message("acked"))
	s.awaitOutcome("acked", "ack")
	s.stop()
	s = sc.with("ROUTES_ELSE", "park").run()
	sc.publish(sc.exchange(), "order.cancelled", message("none"))
	s.awaitOutcome("none", "park")
	e := s.log.settled("none")[0]
	if e.text("reason") != "no_route" || e.text("level") != "warn" || e["url"] != nil {
		t.Errorf("log: %v", e)
	}
	if n := s.metric("sidecar_messages_settled_total", `reason="no_route"`, `outcome="park"`); n != 1 {
		t.Errorf("%v counted", n)
	}
	if n := s.metric("sidecar_http_requests_total"); n != 0 || sc.app.total() != 0 {
		t.Errorf("%v attempts counted, %d POSTs", n, sc.app.total())
	}
	s.stop()
	s = sc.with("ROUTES", "order.created=/orders,order.*=/{routing_key}").run()
	sc.acted("redrive", "--reason", "no_route")
	sc.wantURIs("none", "/order.cancelled")
	sc.settledAll(s, 0)
}
