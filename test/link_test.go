package test

import (
	"os"
	"path/filepath"
	"testing"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// linked puts a proxy between the scene's sidecar and the broker.
func linked(t testing.TB, sc *scene) *brokertest.Proxy {
	t.Helper()
	p := brokertest.NewProxy(t, brokertest.URL(t))
	sc.with("AMQP_URL", p.URL(t, brokertest.URL(t)))
	return p
}

// TestReconnectsAfterEveryCut: the broker is away at the start, a link is cut, the broker is away again. Readiness goes and
// returns, the messages go on.
func TestReconnectsAfterEveryCut(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	p := linked(t, sc)
	p.Refuse()
	s := start(t, sc.env)
	eventually(t, "GET /startupz is 200 without a broker", func() bool { status, _ := s.get(s.admin, "/startupz"); return status == 200 })
	eventually(t, "a line about the broker", func() bool {
		return len(s.log.find(func(e entry) bool { return e.text("cause") == "network" })) > 0
	})
	if s.ready() || s.ended() {
		t.Errorf("ready %v, ended %v without a broker", s.ready(), s.ended())
	}
	p.Restore(t)
	s.awaitReady()
	eventually(t, "both connections are there", func() bool { return s.metric("sidecar_amqp_connected") == 1 })
	before := s.metric("sidecar_amqp_reconnects_total")
	p.Cut()
	eventually(t, "reconnected", func() bool { return s.metric("sidecar_amqp_reconnects_total") > before && s.ready() })
	sc.send("m")
	sc.app.await("m", 1)
	p.Refuse()
	eventually(t, "GET /readyz is not 200 without a broker", func() bool { return !s.ready() })
	if status, _ := s.get(s.admin, "/livez"); status != 200 {
		t.Errorf("GET /livez is %d without a broker", status)
	}
	if status, _ := s.get(s.admin, "/readyz/broker"); status != 503 {
		t.Errorf("GET /readyz/broker is %d without a broker", status)
	}
	if n := s.metric("sidecar_amqp_connected"); n != 0 {
		t.Errorf("sidecar_amqp_connected is %v without a broker", n)
	}
	p.Restore(t)
	s.awaitReady()
	eventually(t, "one consumer", func() bool { return sc.consumers(sc.queue()) == 1 })
	sc.send("last")
	sc.app.await("last", 1)
	sc.settledAll(s, 0)
}

// TestAccessIsLost: a wrong password at the start, another one under a running sidecar, and a virtual host that is deleted.
// It never ends for it, it says why and prints no password, and it needs no restart once an operator has repaired it.
func TestAccessIsLost(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	user := newAccount(t)
	user.may(".*", ".*", ".*")
	file := filepath.Join(t.TempDir(), "password")
	put := func(s string) { must.Do(t, os.WriteFile(file, []byte(s+"\n"), 0o600)) }
	put("canary-wrong")
	s := start(t, sc.with("AMQP_USERNAME", user.name, "AMQP_PASSWORD_FILE", file).env)
	refusals := func() float64 { return s.metric("sidecar_amqp_reconnects_total", `cause="auth"`) }
	refusedSince := func(before float64) {
		t.Helper()
		eventually(t, "a refused login", func() bool {
			return refusals() > before || s.metric("sidecar_amqp_reconnects_total", `cause="vhost"`) > 0
		})
		if s.ready() || s.ended() || len(s.log.find(func(e entry) bool { return e.text("cause") == "auth" && e.text("fix") != "" })) == 0 {
			t.Errorf("ready %v, ended %v, and the log must say why:\n%s", s.ready(), s.ended(), s.log.tail(5))
		}
	}
	refusedSince(0)
	put("canary-password")
	s.awaitReady()

	before := refusals()
	brokertest.Ctl(t, "change_password", user.name, "canary-second")
	brokertest.Ctl(t, "close_all_user_connections", user.name, "rotation")
	refusedSince(before)
	put("canary-second")
	s.awaitReady()

	before = refusals()
	brokertest.Ctl(t, "delete_vhost", brokertest.VhostName(t))
	refusedSince(before)
	awaitDeletedVhosts(t)
	brokertest.Ctl(t, "add_vhost", brokertest.VhostName(t))
	brokertest.Ctl(t, "set_permissions", brokerUser(t), ".*", ".*", ".*")
	user.may(".*", ".*", ".*")
	s.awaitReady()
	sc.send("m")
	sc.app.await("m", 1)
	if s.log.mentions("canary") {
		t.Error("the log holds a password")
	}
	sc.settledAll(s, 0)
}

// awaitDeletedVhosts waits until RabbitMQ deletes no virtual host any more: four times a second it checks itself for those
// that are gone and deletes them once more, later ones of the name, too.
func awaitDeletedVhosts(t *testing.T) {
	t.Helper()
	brokertest.Eval(t, `Deletes = fun(P) -> case process_info(P, current_stacktrace) of
			{_, Calls} -> [] =/= [M || {M, _, _, _} <- Calls, M =:= rabbit_vhost_sup_sup orelse M =:= rabbit_vhost_process];
			undefined -> false
		end end,
		Wait = fun Wait([]) -> ok; Wait(Some) -> timer:sleep(10), Wait(lists:filter(Deletes, Some)) end,
		Wait(lists:filter(Deletes, processes()))`)
}
