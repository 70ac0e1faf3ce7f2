package test

import (
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

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

// TestRoundTrip: a message goes through the whole sidecar and returns, beside a service that notices nothing.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for name, topology := range map[string][]string{
		"classic": {"QUEUE_TYPE", "classic"}, "quorum": {"QUEUE_TYPE", "quorum"}, "native": {"TOPOLOGY", "native"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "native" {
				brokertest.Delaying(t)
			}
			sc := newScene(t).with(topology...)
			s := sc.run()
			before := declared(t, sc.prefix)
			r := command(t, sc.env, "check", "--roundtrip")
			for _, want := range []string{"ok       round trip: roundtrip-", " to " + sc.queue() + ".roundtrip, failed with 503, waited 1s, succeeded with 200 and was acked", "ok       " + sc.queue() + " fits"} {
				if r.code != 0 || !strings.Contains(r.stdout, want) {
					t.Errorf("exit %d, not said: %s\n%s", r.code, want, r.all())
				}
			}
			if after := declared(t, sc.prefix); !slices.Equal(after, before) {
				t.Errorf("before:\n%v\nafter:\n%v", before, after)
			}
			sc.send("m")
			sc.app.await("m", 1)
			sc.settledAll(s, 0)
		})
	}
}

// TestRoundTripAfterOneThatWasKilled: what that left behind is taken, and gone afterwards.
func TestRoundTripAfterOneThatWasKilled(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	sc.run()
	before := declared(t, sc.prefix)
	left := sc.queue() + ".roundtrip"
	if err := sc.declare(left, amqp.Table{"x-dead-letter-exchange": left + ".retry-exchange", "x-dead-letter-routing-key": "retry"}); err != nil {
		t.Fatal(err)
	}
	sc.publish("", left, message("stale"))
	if r := command(t, sc.env, "check", "--roundtrip"); r.code != 0 {
		t.Errorf("exit %d: %s", r.code, r.all())
	}
	if after := declared(t, sc.prefix); !slices.Equal(after, before) {
		t.Errorf("before:\n%v\nafter:\n%v", before, after)
	}
}

func TestRoundTripThatCannotBe(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	for name, c := range map[string]struct {
		set  []string
		want string
	}{
		"a user who declares nothing": {[]string{"TOPOLOGY_MODE", "verify"}, "SIDECAR_TOPOLOGY_MODE=verify does not allow that"},
		"no broker":                   {[]string{"AMQP_URL", "amqp://127.0.0.1:1/"}, "connect to the broker"},
	} {
		if r := command(t, sc.envWith("SIDECAR_"+c.set[0], c.set[1]), "check", "--roundtrip"); r.code != 1 || !strings.Contains(r.all(), c.want) {
			t.Errorf("%s: exit %d: %s", name, r.code, r.all())
		}
	}
	if r := command(t, sc.env, "check", "--round"); r.code != 64 {
		t.Errorf("exit %d with an unknown flag", r.code)
	}
}

// TestRoundTripWithoutRights says which right is missing and leaves nothing behind.
func TestRoundTripWithoutRights(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	sc.run()
	before := declared(t, sc.prefix)
	user := newAccount(t)
	sc.with("AMQP_USERNAME", user.name, "AMQP_PASSWORD", "canary-password")
	user.least(sc.env)
	r := command(t, sc.env, "check", "--roundtrip")
	if r.code != 1 || !strings.Contains(r.all(), "the round trip failed: ") || !strings.Contains(r.all(), ".roundtrip") {
		t.Errorf("exit %d: %s", r.code, r.all())
	}
	if !strings.Contains(r.stdout, "ok       "+sc.queue()+" fits") {
		t.Errorf("the check itself did not run: %s", r.all())
	}
	if after := declared(t, sc.prefix); !slices.Equal(after, before) {
		t.Errorf("before:\n%v\nafter:\n%v", before, after)
	}
}
