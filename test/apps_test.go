package test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

var (
	appAddress = regexp.MustCompile(`(?m)(?:listening on|Running on http://) ?(127\.0\.0\.1:\d+)$`)
	appWork    = regexp.MustCompile(`(?m)^(order\.[a-z]+) (\S+): `)
)

// TestAppsDispatchByRoutingKey: apps written in the plain way, which have a function for each routing key and ack the keys
// that they do not know, do the work of each message once, after retries and a redrive, each in another topology.
func TestAppsDispatchByRoutingKey(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]struct {
		preset int // of presets
		argv   []string
	}{
		"node":  {0, []string{"node", "../examples/app-node/app.mjs"}},
		"flask": {1, []string{exampleTool(t, "EXAMPLES_FLASK"), "../examples/app-flask/app.py"}},
		"go":    {2, []string{exampleProgram(t, "app-go")}},
		"java":  {3, []string{"java", "-XX:TieredStopAtLevel=1", "../examples/app-java/App.java"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, url := launchApp(t, a.argv...)
			sc := newScene(t)
			dispatched(t, sc.with("APP_URL", url), presets(sc.prefix)[a.preset], log)
		})
	}
}

// launchApp starts an app that prints its address, and returns what it prints and its URL.
func launchApp(t *testing.T, argv ...string) (log *output, url string) {
	t.Helper()
	a := launchBinary(t, argv[0], nil, append(argv[1:], "0")...)
	eventually(t, "the address of the app", func() bool {
		found := appAddress.FindStringSubmatch(a.log.String())
		if found != nil {
			url = "http://" + found[1] + "/"
		}
		return found != nil
	})
	return a.log, url
}

// dispatched sends messages of which the app fails 0, 2 or 3 attempts; the third attempt is the last one.
func dispatched(t *testing.T, sc *scene, p preset, app *output) {
	t.Helper()
	sc.with("TOPOLOGY", p.name, "QUEUE_TYPE", "classic").with(p.env...).with("MAX_RETRIES", "2", "RETRY_DELAY", "50ms", "DLQ", p.dlq)
	if _, tiers := sc.env["SIDECAR_RETRY_DELAYS"]; tiers {
		sc.with("RETRY_DELAY", "", "RETRY_DELAYS", "50ms,60ms")
	}
	if p.name == "topic-tiers" {
		sc.with("BINDINGS", p.exchange+":order.#")
	}
	s := sc.run()
	want := map[string][]string{} // messages by the number of attempts that fail
	for _, key := range []string{"order.created", "order.viewed", "order.cancelled", "order.shipped"} {
		for _, closed := range []string{"0", "2", "3"} {
			m := message(fmt.Sprintf("%s-%s-%s", sc.prefix, key, closed))
			m.Body, m.Headers = []byte(`{"order":7}`), amqp.Table{"closed": closed}
			sc.publish(p.exchange, key, m)
			if closed == "0" { // a producer's repetition, which the app has to recognise
				sc.publish(p.exchange, key, m)
			}
			if key != "order.viewed" {
				want[closed] = append(want[closed], key+" "+m.MessageId)
			}
		}
	}
	done := slices.Concat(want["0"], want["2"])
	sc.awaitWork(p, app, done, len(want["3"]))
	sc.cli(0, "redrive", "--all")
	done = append(done, want["3"]...)
	sc.awaitWork(p, app, done, 0)
	s.stop()
	if n := sc.ready(p.queue); n > 0 {
		t.Errorf("%d messages left in the service queue", n)
	}
	for _, e := range s.log.find(func(e entry) bool { return e.text("outcome") != "" }) {
		if key := e.text("routing_key"); !strings.Contains(e.text("message_id"), "-"+key+"-") {
			t.Errorf("the log has the routing key %q for %s", key, e.text("message_id"))
		}
	}
}

// awaitWork waits until the app has done that work and no more, and so many messages are parked.
func (sc *scene) awaitWork(p preset, app *output, done []string, parked int) {
	sc.t.Helper()
	slices.Sort(done)
	eventually(sc.t, fmt.Sprintf("%q and %d parked messages", done, parked), func() bool {
		var got []string
		for _, m := range appWork.FindAllStringSubmatch(app.String(), -1) {
			if strings.HasPrefix(m[2], sc.prefix) {
				got = append(got, m[1]+" "+m[2])
			}
		}
		slices.Sort(got)
		return slices.Equal(got, done) && sc.ready(p.dlq) == parked
	})
}
