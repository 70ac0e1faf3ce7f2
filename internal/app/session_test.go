package app

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/apptest"
	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// isolated sends the connection that consumes, and only that one, through the proxy.
func isolated(t *testing.T, proxy *brokertest.Proxy) func(*App) {
	url := proxy.URL(t, brokertest.URL(t))
	return func(a *App) {
		o := brokerOptions(a.cfg, "consume", a.build, a.log, prometheus.NewRegistry())
		o.URLs = func() ([]string, error) { return []string{url}, nil }
		a.consuming = broker.NewDialer(o)
	}
}

// TestNewSessionForgetsAReturnedPublication: a park comes back because its binding has gone, and the session is lost in
// the look that this asks for. The next session begins with a look of its own, so when it stands nothing is wrong any more.
func TestNewSessionForgetsAReturnedPublication(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"declare", "verify"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			newSessionForgets(t, mode)
		})
	}
}

func newSessionForgets(t *testing.T, mode string) {
	const patience = 20 * time.Second
	gate, app := make(chan struct{}), apptest.NewApp(t)
	app.On("", apptest.Held(gate, apptest.Say(apptest.Status(409, "Amqp-Disposition: park"))))

	url := brokertest.URL(t)
	env := []string{"SIDECAR_DLX=dlx", "SIDECAR_APP_URL=" + app.URL + "/"}
	first, _, stop := run(t, live(t, env...)) // declares what the second may only verify
	brokertest.Eventually(t, patience, "everything is declared", first.connected.Load)
	must.Do(t, stop())
	proxy := brokertest.NewProxy(t, url)
	a, _, _ := run(t, live(t, append(env, "SIDECAR_TOPOLOGY_MODE="+mode)...), isolated(t, proxy))
	brokertest.Eventually(t, patience, "consuming", a.consumer.Active)
	brokertest.Send(t, url, a.plan.Queue, "homeless")
	brokertest.Eventually(t, patience, "the app has it", func() bool { return len(app.Requests()) > 0 })

	ch, park := brokertest.Channel(t, url), a.plan.Park
	proxy.Stall(brokertest.Both) // nothing can be looked at, nor repaired
	must.Do(t, ch.QueueUnbind(park.Queue, park.Key, park.Exchange, nil))
	close(gate)
	brokertest.Eventually(t, patience, "the park came back and a look was begun", func() bool { return a.fits.bad() && len(a.look) == 0 })
	proxy.Refuse()
	brokertest.Eventually(t, patience, "the session is over, and nobody publishes for it any more", func() bool {
		return !a.connected.Load() && a.consumer.Stuck() == 0 && a.consumer.Inflight() == 0
	})
	if !a.fits.bad() {
		t.Fatal("the finding has gone before the new session")
	}
	if mode == "verify" {
		must.Do(t, ch.QueueBind(park.Queue, park.Key, park.Exchange, false, nil))
	}
	proxy.Restore(t)
	brokertest.Eventually(t, patience, "the new session", a.connected.Load)
	s := state{a}
	if st := s.Status(); len(st.Findings) > 0 || len(st.Pauses) > 0 {
		t.Errorf("the new session stands: findings %+v, pauses %+v", st.Findings, st.Pauses)
	}
	if c := s.Ready().Checks[1]; c.Name != "topology" || !c.OK {
		t.Errorf("the new session stands: %+v", c)
	}
	if d := brokertest.Get(t, url, park.Queue, patience); string(d.Body) != "homeless" {
		t.Errorf("parked %q", d.Body)
	}
}

// TestSessionEndsWhenNobodyLooks: without a channel left for a look at the topology, the session is given up, although messages
// would still come on it.
func TestSessionEndsWhenNobodyLooks(t *testing.T) {
	t.Parallel()
	a := fresh(t, live(t))
	s := must.Get(a.consuming.Dial(t.Context()))(t)
	t.Cleanup(s.Close)
	ended := make(chan error, 1)
	go func() { ended <- a.serve(t.Context(), s) }()
	brokertest.Eventually(t, 20*time.Second, "the session is served", a.connected.Load)
	for err := error(nil); err == nil; _, err = s.Channel(t.Context()) {
	}
	must.Do(t, s.Err())
	a.askForLook()
	brokertest.Eventually(t, 20*time.Second, "the session is given up", func() bool { return len(ended) > 0 && s.Err() != nil })
}
