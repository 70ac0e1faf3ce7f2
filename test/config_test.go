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
		if r.code != 2 || strings.Count(r.stdout, "broker   ") != 1 || !strings.Contains(r.stdout, "problem  "+name+": missing in virtual host ") ||
			!strings.Contains(r.stdout, "         queue \""+sc.queue()+"."+name+"\"") {
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
	if lines := strings.Split(strings.TrimSpace(r.stdout), "\n"); r.code != 0 || len(lines) != 2 || !strings.Contains(lines[1], `,"queue":"`+sc.queue()+`.refunds","fits":true`) {
		t.Errorf("exit %d:\n%s", r.code, r.all())
	}
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
	if target := sc.app.await("none", 1)[0].Target; target != "/order.cancelled" {
		t.Errorf("POSTed to %s", target)
	}
	s.awaitOutcome("none", "ack")
	if url := s.log.settled("none")[0].text("url"); !strings.HasSuffix(url, "/order.cancelled") {
		t.Errorf("the log names %q", url)
	}
	sc.settledAll(s, 0)
}
