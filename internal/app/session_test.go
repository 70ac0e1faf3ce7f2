package app

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/config"
)

// apart runs a sidecar whose connection that consumes goes through the proxy, and only that one.
func apart(t *testing.T, cfg *config.Config, proxy *brokertest.Proxy) (*App, *output) {
	t.Helper()
	log := &output{}
	a, err := New(cfg, Build{Version: "test", Commit: "none"}, log)
	if err != nil {
		t.Fatal(err)
	}
	o := brokerOptions(cfg, "consume", a.build, a.log, prometheus.NewRegistry())
	o.URLs = func() ([]string, error) { return []string{proxy.URL(t, brokertest.URL(t))}, nil }
	a.consuming = broker.NewDialer(o)
	start(t, a, log)
	return a, log
}

// TestNewSessionForgetsAReturnedPublication: a park comes back because its binding has gone, and the session is lost in
// the look that this asks for. The next session begins with a look of its own, so when it stands nothing is wrong any more.
func TestNewSessionForgetsAReturnedPublication(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"declare", "verify"} {
		t.Run(mode, func(t *testing.T) { newSessionForgets(t, mode) })
	}
}

func newSessionForgets(t *testing.T, mode string) {
	const patience = 20 * time.Second
	asked, answer := make(chan struct{}, 10), make(chan struct{})
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-answer
		w.Header().Set("Amqp-Disposition", "park")
		w.WriteHeader(http.StatusConflict)
	}))
	t.Cleanup(app.Close)
	release := sync.OnceFunc(func() { close(answer) })
	t.Cleanup(release)

	url, name := brokertest.URL(t), brokertest.Name(t, "app")
	env := []string{"SIDECAR_SERVICE=" + name, "SIDECAR_DLX=" + name + ".dlx", "SIDECAR_APP_URL=" + app.URL + "/"}
	first, _, stop := run(t, load(t, env...)) // declares what the second may only verify
	brokertest.Eventually(t, patience, "everything is declared", first.connected.Load)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	proxy := brokertest.NewProxy(t, url)
	a, _ := apart(t, load(t, append(env, "SIDECAR_TOPOLOGY_MODE="+mode)...), proxy)
	brokertest.Eventually(t, patience, "consuming", a.consumer.Active)
	brokertest.Send(t, url, a.plan.Queue, "homeless")
	<-asked

	ch, park := brokertest.Channel(t, url), a.plan.Park
	proxy.Stall(brokertest.Both) // nothing can be looked at, nor repaired
	if err := ch.QueueUnbind(park.Queue, park.Key, park.Exchange, nil); err != nil {
		t.Fatal(err)
	}
	release()
	brokertest.Eventually(t, patience, "the park came back and a look was begun", func() bool { return a.fits.bad() && len(a.look) == 0 })
	proxy.Refuse()
	brokertest.Eventually(t, patience, "the session is over, and nobody publishes for it any more", func() bool {
		return !a.connected.Load() && a.consumer.Stuck() == 0 && a.consumer.Inflight() == 0
	})
	if !a.fits.bad() {
		t.Fatal("the finding has gone before the new session")
	}
	if mode == "verify" {
		bind(t, ch, park.Queue, park.Key, park.Exchange)
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

func bind(t *testing.T, ch *amqp.Channel, queue, key, exchange string) {
	t.Helper()
	if err := ch.QueueBind(queue, key, exchange, false, nil); err != nil {
		t.Fatal(err)
	}
}
