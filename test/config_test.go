package test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// valid is an environment that is right but leads nowhere: what is tested here ends before anything is dialed.
func valid() map[string]string {
	return map[string]string{
		"SIDECAR_SERVICE": "shop-orders", "SIDECAR_AMQP_URL": "amqp://guest:guest@127.0.0.1:1/", "SIDECAR_ADMIN_ADDR": "127.0.0.1:0", "SIDECAR_CONTROL_ADDR": "127.0.0.1:0",
	}
}

// TestBadConfiguration: whatever starts with a wrong configuration ends with 64 and a line for each mistake, without a
// secret.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	must.Do(t, os.WriteFile(file, []byte("canary-content\n"), 0o600))
	env := map[string]string{
		"SIDECAR_SERVICE": "Wms Cincout", "SIDECAR_AMQP_URL": "http://u:canary-secret@127.0.0.1/", "SIDECAR_RETRY_DELAY": "7",
		"SIDECAR_APP_TOKEN": "canary-app-token", "SIDECAR_APP_TOKEN_FILE": file, "SIDECAR_AMQP_PASSWORD_FILE": "/dev/zero",
		"SIDECAR_CONCURRENCY": "100", "SIDECAR_PREFETCH": "50", "SIDECAR_CONTROL_ADDR": "0.0.0.0:0", "SIDECAR_CONCURENCY": "1",
		"SIDECAR_TOPOLOGY": "per-queue", "SIDECAR_TYPO": "canary-typo",
	}
	for _, args := range [][]string{{"run"}, {"config"}, {"check"}, {"plan"}, {"dlq", "list"}, {"outbox", "status"}} {
		r := command(t, env, args...)
		if r.code != 64 || strings.Contains(r.all(), "canary") {
			t.Errorf("%q: exit %d, or a secret is shown:\n%s", args, r.code, r.all())
		}
		for name := range env {
			if !strings.Contains(r.all(), name) {
				t.Errorf("%q does not name %s:\n%s", args, name, r.all())
			}
		}
	}
}

// TestExplain: what a message and an answer come to, with the configuration that the sidecar would have.
func TestExplain(t *testing.T) {
	t.Parallel()
	env := valid()
	env["SIDECAR_ROUTES"], env["SIDECAR_APP_URL"] = "order.#=/orders/{routing_key}, type:refund.*=/refunds", "unix:///run/app.sock:/in?key=s3cr3t"
	env["SIDECAR_ROUTES_ELSE"], env["SIDECAR_RESPONSE_DIALECT"] = "park", "dapr"
	order := []string{"--routing-key", "order.created"}
	for _, c := range []struct {
		args  []string
		words []string
	}{
		{[]string{"--status", "503", "--retry", "10"}, []string{": park", "max_retries"}},
		{nil, []string{"status 200", "POST to unix:///run/app.sock:/orders/order.created, by the route order.#=/orders/{routing_key}"}},
		{[]string{"--body", `{"status":"DROP"}`}, []string{": park", "disposition", "dapr: DROP"}},
		{[]string{"--body", strings.Repeat(" ", 70000)}, []string{": retry", "malformed", "over 64 KiB"}},
		{[]string{"--routing-key", "x", "--type", "refund.v2", "--status", "500"}, []string{": retry", "/refunds, by the route type:refund.*=/refunds"}},
		{[]string{"--routing-key", "x"}, []string{"no_route", ": park", "not POSTed"}},
	} {
		r := command(t, env, slices.Concat([]string{"explain"}, order, c.args)...)
		for _, word := range c.words {
			if r.code != 0 || !strings.Contains(r.stdout, word) || strings.Contains(r.all(), "s3cr3t") {
				t.Errorf("explain %.80q: exit %d, no %q in %q", c.args, r.code, word, r.all())
			}
		}
	}
	if r := command(t, valid(), "explain", "--status", "200", "--body", "{}"); r.code != 64 || !strings.Contains(r.stderr, "SIDECAR_RESPONSE_DIALECT") {
		t.Errorf("a body in no dialect: exit %d, %s", r.code, r.all())
	}
}

// importDefinitions is what `rabbitmqctl import_definitions FILE` runs inside the node. The file itself may be out of
// the node's sight, and standard input is not read everywhere.
func importDefinitions(t testing.TB, json string) {
	t.Helper()
	brokertest.Eval(t, "ok = rabbit_definitions:import_raw(<<"+strconv.Quote(json)+">>)")
}

// TestStartedNamesEverything: the line of the start and /status have all queues, their bindings and the app's URLs.
func TestStartedNamesEverything(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	other := newApp(t)
	sc.with("SUBSCRIPTIONS", "orders,refunds", "SUB_REFUNDS_APP_URL", other.URL+"/refunds?token=canary",
		"SUB_REFUNDS_EXCHANGE_TYPE", "topic", "SUB_REFUNDS_EXCHANGE", sc.prefix+".events", "SUB_REFUNDS_BINDINGS", sc.prefix+".events:refund.*")
	s := sc.run()
	queues := []string{sc.queue() + ".orders", sc.queue() + ".refunds"}
	bindings := []string{sc.exchange() + ":", sc.prefix + ".events:refund.*"}
	urls := []string{sc.env["SIDECAR_APP_URL"], other.URL + "/refunds"}
	lines := s.log.find(func(e entry) bool { return e.is("started") })
	if len(lines) != 1 || lines[0].text("queue") != strings.Join(queues, ", ") || lines[0].text("bindings") != strings.Join(bindings, ",") ||
		lines[0].text("url") != strings.Join(urls, ", ") || lines[0].text("topology") != "fanout" {
		t.Errorf("%v", lines)
	}
	type bound struct{ Exchange, Key, Queue string }
	type state struct {
		Queue    string
		Bindings []bound
		App      struct{ URL string }
	}
	var st struct {
		state
		Subscriptions []state
	}
	_, page := s.get(s.control, "/status")
	must.Do(t, json.Unmarshal([]byte(page), &st))
	of := []bound{{sc.exchange(), "", queues[0]}, {sc.prefix + ".events", "refund.*", queues[1]}}
	if len(st.Bindings) != 2 || st.Bindings[0] != of[0] || st.Bindings[1] != of[1] || st.App.URL != strings.Join(urls, ", ") || len(st.Subscriptions) != 2 {
		t.Fatalf("%s", page)
	}
	for i, own := range st.Subscriptions {
		if own.Queue != queues[i] || len(own.Bindings) != 1 || own.Bindings[0] != of[i] || own.App.URL != urls[i] {
			t.Errorf("%+v", own)
		}
	}
	s.stop()
	for _, e := range s.log.find(func(entry) bool { return true }) {
		for field, value := range e {
			if value == "" {
				t.Errorf("empty %s of %s", field, e.text("msg"))
			}
		}
	}
}

// TestCheckOfSubscriptions: a check names the subscription in each line, and finds what one of them lacks.
func TestCheckOfSubscriptions(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("SUBSCRIPTIONS", "orders,refunds").with("QUEUE_TYPE", "quorum")
	r := command(t, sc.env, "check")
	for _, name := range []string{"orders", "refunds"} {
		if r.code != 1 || !strings.Contains(r.stdout, "problem  "+name+": queue \""+sc.queue()+"."+name+"\": missing\n") {
			t.Errorf("exit %d, %s is missing:\n%s", r.code, name, r.all())
		}
	}
	sc.run()
	before := declared(t, sc.prefix)
	r = command(t, sc.env, "check", "--roundtrip")
	for _, name := range []string{"orders", "refunds"} {
		queue := sc.queue() + "." + name
		for _, want := range []string{"\nok       " + name + ": " + queue + " fits", " was published to " + queue + ".roundtrip, failed with 503"} {
			if r.code != 0 || !strings.Contains(r.stdout, want) {
				t.Errorf("exit %d, not said: %s\n%s", r.code, want, r.all())
			}
		}
	}
	if after := declared(t, sc.prefix); !slices.Equal(after, before) {
		t.Errorf("before:\n%v\nafter:\n%v", before, after)
	}
	r = command(t, sc.env, "check", "--json")
	if lines := strings.Split(strings.TrimSpace(r.stdout), "\n"); r.code != 0 || len(lines) != 2 || !strings.Contains(lines[1], `"subscription":"refunds","queue":"`+sc.queue()+`.refunds","fits":true`) {
		t.Errorf("exit %d:\n%s", r.code, r.all())
	}
}

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
