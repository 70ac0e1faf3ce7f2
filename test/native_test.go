package test

import (
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// nativeScene has a queue of RabbitMQ 4.3 that delays retries itself, three of them.
func nativeScene(t testing.TB) *scene {
	t.Helper()
	brokertest.Delaying(t)
	return newScene(t).with("TOPOLOGY", "native", "RETRY_DELAY", "200ms", "MAX_RETRIES", "3")
}

// declared lists the queues and exchanges of the tests' vhost that begin with prefix.
func declared(t *testing.T, prefix string) []string {
	t.Helper()
	var all []string
	for _, what := range []string{"queues", "exchanges"} {
		for _, row := range brokertest.Rows(t, what, "name") {
			if name, _ := row["name"].(string); strings.HasPrefix(name, prefix) {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return all
}

// TestRoundTrip: a message goes through the whole sidecar and returns, beside a service that notices nothing. What an
// earlier round trip left behind that was killed is taken. Without the rights nothing stays behind either.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, preset := range []string{"fanout", "native"} {
		t.Run(preset, func(t *testing.T) {
			t.Parallel()
			sc := map[string]func(testing.TB) *scene{"fanout": newScene, "native": nativeScene}[preset](t)
			s := sc.run()
			before := declared(t, sc.prefix)
			left := sc.queue() + ".roundtrip"
			if preset == "fanout" {
				must.Do(t, sc.declare(left, amqp.Table{"x-dead-letter-exchange": left + ".retry-exchange", "x-dead-letter-routing-key": "retry"}))
				sc.publish("", left, message("stale"))
			}
			r := command(t, sc.env, "check", "--roundtrip")
			for _, want := range []string{
				"ok       round trip: roundtrip-", " to " + left + ", failed with 503, waited 1s, succeeded with 200 and was acked",
				"ok       " + sc.queue() + " fits",
			} {
				if r.code != 0 || !strings.Contains(r.stdout, want) {
					t.Errorf("exit %d, not said: %s\n%s", r.code, want, r.all())
				}
			}
			user := newAccount(t)
			sc.with("AMQP_USERNAME", user.name, "AMQP_PASSWORD", "canary-password")
			user.least(sc.env)
			r = command(t, sc.env, "check", "--roundtrip")
			if r.code != 1 || !strings.Contains(r.all(), "the round trip failed: ") || !strings.Contains(r.stdout, "ok       "+sc.queue()+" fits") {
				t.Errorf("exit %d: %s", r.code, r.all())
			}
			if after := declared(t, sc.prefix); !slices.Equal(after, before) {
				t.Errorf("before:\n%v\nafter:\n%v", before, after)
			}
			if r := command(t, sc.envWith("SIDECAR_TOPOLOGY_MODE", "verify"), "check", "--roundtrip"); r.code != 1 ||
				!strings.Contains(r.all(), "SIDECAR_TOPOLOGY_MODE=verify does not allow that") {
				t.Errorf("exit %d: %s", r.code, r.all())
			}
			sc.send("m")
			sc.app.await("m", 1)
			sc.settledAll(s, 0)
		})
	}
}
