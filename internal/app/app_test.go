package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"sidecar/internal/brokertest"
	"sidecar/internal/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output is a log that can be read while it is written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// load reads a configuration for a service of the test's own.
func load(t *testing.T, more ...string) *config.Config {
	t.Helper()
	// Of two equal names the first one counts.
	environ := append(more,
		"SIDECAR_SERVICE="+brokertest.Name(t, "app"), "SIDECAR_AMQP_URL="+brokertest.URL(t),
		"SIDECAR_ADMIN_ADDR=127.0.0.1:0", "SIDECAR_CONTROL_ADDR=127.0.0.1:0", "SIDECAR_SHUTDOWN_GRACE=5s")
	cfg, err := config.Load(environ, TopologyRule())
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// run runs a sidecar until the test stops it.
func run(t *testing.T, cfg *config.Config) (*App, *output, func() error) {
	t.Helper()
	log := &output{}
	a, err := New(cfg, Build{Version: "test", Commit: "none"}, log)
	if err != nil {
		t.Fatal(err)
	}
	return a, log, start(t, a, log)
}

// start runs a until the test stops it, and deletes what its plan names in the end.
func start(t *testing.T, a *App, log *output) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, make(chan struct{})) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		_ = stop()
		ch := brokertest.Channel(t, brokertest.URL(t))
		for _, q := range a.plan.Queues {
			_, _ = ch.QueueDelete(q.Name, false, false, false)
		}
		for _, e := range a.plan.Exchanges {
			_ = ch.ExchangeDelete(e.Name, false, false)
		}
		if t.Failed() {
			t.Logf("log:\n%s", log)
		}
	})
	return stop
}

func TestDriftKeepsItUpAndUnready(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	cfg := load(t)
	plan, err := newPlan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	wait := plan.Waits[0].Queue
	brokertest.Queue(t, url, wait, amqp.Table{
		"x-message-ttl": int64(1234), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": plan.Queue,
	})
	a, log, stop := run(t, cfg)
	brokertest.Eventually(t, 20*time.Second, "the finding", func() bool { return a.fits.bad() })
	s := state{a}
	if r := s.Ready(); r.Ready {
		t.Errorf("ready with a topology that does not fit: %+v", r)
	}
	st := s.Status()
	if len(st.Findings) == 0 || st.Findings[0].Problem != "drift" || !strings.Contains(st.Findings[0].Object, wait) {
		t.Errorf("findings %+v", st.Findings)
	}
	if !strings.Contains(log.String(), "topology does not fit") {
		t.Error("the log does not say what is wrong")
	}
	var out bytes.Buffer
	if err := Check(context.Background(), cfg, &out); !errors.Is(err, ErrFindings) || !strings.Contains(out.String(), "1234") {
		t.Errorf("check: %v\n%s", err, out.String())
	}

	// Somebody repairs it; the next look may be half a minute away, so ask for one.
	ch := brokertest.Channel(t, url)
	if _, err := ch.QueueDelete(wait, false, false, false); err != nil {
		t.Fatal(err)
	}
	a.askForLook()
	brokertest.Eventually(t, 20*time.Second, "it fits again", func() bool {
		findings, looked := a.fits.last()
		return looked && len(findings) == 0
	})
	out.Reset()
	if err := Check(context.Background(), cfg, &out); err != nil || !strings.Contains(out.String(), "ok ") {
		t.Errorf("check: %v\n%s", err, out.String())
	}
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestVerifyPausesWhileSomethingIsMissing(t *testing.T) {
	t.Parallel()
	cfg := load(t, "SIDECAR_TOPOLOGY_MODE=verify")
	a, _, stop := run(t, cfg)
	brokertest.Eventually(t, 20*time.Second, "the findings", func() bool { return a.fits.bad() })
	st := state{a}.Status()
	if st.State != "paused" || st.Findings[0].Problem != "missing" {
		t.Errorf("state %s, findings %+v", st.State, st.Findings)
	}
	var out bytes.Buffer
	if err := Check(context.Background(), cfg, &out); !errors.Is(err, ErrFindings) || !strings.Contains(out.String(), "note ") {
		t.Errorf("check: %v\n%s", err, out.String())
	}
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestMissingQueueIsDeclaredAgain(t *testing.T) {
	t.Parallel()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(app.Close)
	url := brokertest.URL(t)
	a, _, _ := run(t, load(t, "SIDECAR_APP_URL="+app.URL+"/"))
	brokertest.Eventually(t, 20*time.Second, "consuming", func() bool { return a.consumer.Active() })
	ch := brokertest.Channel(t, url)
	if _, err := ch.QueueDelete(a.plan.Park.Queue, false, false, false); err != nil {
		t.Fatal(err)
	}
	findings, _ := a.fits.last()
	a.missing(findings) // nothing is missing: changes nothing
	if !a.flow.Open() {
		t.Fatal("paused although nothing was reported")
	}
	a.askForLook() // what a returned park does
	brokertest.Eventually(t, 20*time.Second, "the dead-letter queue is back", func() bool {
		c, err := amqp.Dial(url)
		if err != nil {
			return false
		}
		defer c.Close() //nolint:errcheck // a look
		probe, err := c.Channel()
		if err != nil {
			return false
		}
		_, err = probe.QueueDeclarePassive(a.plan.Park.Queue, true, false, false, false, nil)
		return err == nil
	})
}

func TestListenFails(t *testing.T) {
	t.Parallel()
	taken := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(taken.Close)
	addr := strings.TrimPrefix(taken.URL, "http://")
	a, err := New(load(t, "SIDECAR_ADMIN_ADDR="+addr), Build{}, &output{})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(context.Background(), nil); err == nil || !strings.Contains(err.Error(), addr) {
		t.Errorf("Run on a taken address: %v", err)
	}
}

func TestRenderPlanRefusesOtherFormats(t *testing.T) {
	t.Parallel()
	if _, err := RenderPlan(load(t), "yaml"); err == nil {
		t.Error("rendered yaml")
	}
}

func TestPresetValuesOfTiers(t *testing.T) {
	t.Parallel()
	v, _, err := PresetValues(load(t, "SIDECAR_RETRY_DELAYS=1s,10s", "SIDECAR_QUEUE_TYPE=quorum"))
	if err != nil || v["SIDECAR_QUEUE_TYPE"] != "quorum" || v["SIDECAR_RETRY_DELAYS"] != "1s,10s" {
		t.Errorf("%v %v", v, err)
	}
}

func TestDefinitionsNameTheVhost(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{"amqp://127.0.0.1/orders": "orders", "amqp://127.0.0.1/": "/", "amqp://127.0.0.1": "/"} {
		out, err := RenderPlan(load(t, "SIDECAR_AMQP_URL="+url), "definitions")
		if err != nil {
			t.Fatal(err)
		}
		var d struct{ Queues []struct{ Vhost string } }
		if err := json.Unmarshal([]byte(out), &d); err != nil || len(d.Queues) == 0 || d.Queues[0].Vhost != want {
			t.Errorf("%s: %v %+v", url, err, d)
		}
	}
}
