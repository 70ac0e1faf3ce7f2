package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/config"
	"sidecar/internal/telemetry"
	"sidecar/internal/testkit/must"
	"sidecar/internal/testkit/proxy"
)

func TestMain(m *testing.M) {
	telemetry.AdoptLibraries(slog.New(slog.DiscardHandler)) // before the first connection, see there
	goleak.VerifyTestMain(m)
}

// load reads a configuration that needs no broker.
func load(t *testing.T, more ...string) *config.Config {
	t.Helper()
	// Of two equal names the first one counts.
	environ := append(more, "SIDECAR_SERVICE=demo-orders",
		"SIDECAR_ADMIN_ADDR=127.0.0.1:0", "SIDECAR_CONTROL_ADDR=127.0.0.1:0", "SIDECAR_SHUTDOWN_GRACE=5s")
	cfg, err := config.Load(environ, 0, Rule)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// live is load for the test's own virtual host.
func live(t *testing.T, more ...string) *config.Config {
	t.Helper()
	return load(t, append(more, "SIDECAR_AMQP_URL="+brokertest.URL(t))...)
}

// run runs a sidecar until the test stops it.
func run(t *testing.T, cfg *config.Config, edits ...func(*App)) (*App, *apptest.Log, func() error) {
	t.Helper()
	log := &apptest.Log{}
	a, err := New(cfg, Build{Version: "test", Commit: "none"}, log)
	if err != nil {
		t.Fatal(err)
	}
	for _, edit := range edits {
		edit(a)
	}
	return a, log, serve(t, a, log)
}

// serve runs a, which logs to log, until the test stops it.
func serve(t *testing.T, a *App, log *apptest.Log) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, context.Background()) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		_ = stop()
		if t.Failed() {
			t.Logf("log:\n%s", log)
		}
	})
	return stop
}

// fresh is an app that does not run.
func fresh(t *testing.T, cfg *config.Config) *App {
	t.Helper()
	a, err := New(cfg, Build{}, &apptest.Log{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.abandon)
	return a
}

// rendered is the plan in a format.
func rendered(t *testing.T, format string, more ...string) string {
	t.Helper()
	out, err := RenderPlan(load(t, more...), format)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestDriftKeepsItUpAndUnready(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	cfg := live(t)
	plan, err := newPlan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	wait := plan.Waits[0].Queue
	brokertest.Queue(t, url, wait, amqp.Table{
		"x-message-ttl": int64(5000), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": plan.Queue, "x-expires": int64(3_600_000),
	})
	a, log, stop := run(t, cfg)
	brokertest.Eventually(t, time.Minute, "the finding in the log", func() bool { return strings.Contains(log.String(), "topology does not fit") })
	s := a
	if r := s.Ready(""); r.Ready {
		t.Errorf("ready with a topology that does not fit: %+v", r)
	}
	st := s.Status()
	if len(st.Findings) == 0 || st.Findings[0].Problem != "drift" || !strings.Contains(st.Findings[0].Object, wait) {
		t.Errorf("findings %+v", st.Findings)
	}
	var out bytes.Buffer
	if err := Check(context.Background(), cfg, &out, false, plain); !errors.Is(err, errFindings) || !strings.Contains(out.String(), "3600000") {
		t.Errorf("check: %v\n%s", err, out.String())
	}

	// After the repair the next check may be half a minute away, so ask for one.
	ch := brokertest.Channel(t, url)
	if _, err := ch.QueueDelete(wait, false, false, false); err != nil {
		t.Fatal(err)
	}
	ask(a.subscriptions[0].check)
	brokertest.Eventually(t, time.Minute, "it fits again", func() bool {
		findings, checked := a.subscriptions[0].status.last()
		return checked && len(findings) == 0
	})
	out.Reset()
	if err := Check(context.Background(), cfg, &out, false, plain); err != nil || !strings.Contains(out.String(), "ok ") {
		t.Errorf("check: %v\n%s", err, out.String())
	}
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestListenFails(t *testing.T) {
	t.Parallel()
	taken := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(taken.Close)
	addr := strings.TrimPrefix(taken.URL, "http://")
	a, err := New(load(t, "SIDECAR_ADMIN_ADDR="+addr), Build{}, &apptest.Log{})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(t.Context(), context.Background()); err == nil || !strings.Contains(err.Error(), addr) {
		t.Errorf("Run on a taken address: %v", err)
	}
}

func TestPresetValuesOfTiers(t *testing.T) {
	t.Parallel()
	v, _, err := PresetValues(load(t, "SIDECAR_RETRY_DELAYS=1s,10s", "SIDECAR_QUEUE_TYPE=quorum"))
	if err != nil || v["SIDECAR_RETRY_DELAYS"] != "1s,10s" {
		t.Errorf("%v %v", v, err)
	}
}

func TestDefinitionsNameTheVhost(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{"amqp://127.0.0.1/orders": "orders", "amqp://127.0.0.1/": "/", "amqp://127.0.0.1": "/"} {
		out := rendered(t, "definitions", "SIDECAR_AMQP_URL="+url)
		var d struct{ Queues []struct{ Vhost string } }
		if err := json.Unmarshal([]byte(out), &d); err != nil || len(d.Queues) == 0 || d.Queues[0].Vhost != want {
			t.Errorf("%s: %v %+v", url, err, d)
		}
	}
}

// TestListenerThatDies: a sidecar that does not answer any more drains, and ends with the reason.
func TestListenerThatDies(t *testing.T) {
	t.Parallel()
	addr := must.Get(proxy.FreeAddr())(t)
	a := must.Get(New(load(t, "SIDECAR_AMQP_URL=amqp://127.0.0.1:1", "SIDECAR_ADMIN_ADDR="+addr), Build{}, &apptest.Log{}))(t)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(t.Context(), context.Background()) }()
	brokertest.Eventually(t, time.Minute, "it listens", func() bool {
		answer, err := http.Get("http://" + addr + "/livez")
		return err == nil && answer.Body.Close() == nil
	})
	for fd := range 4096 {
		if s, err := syscall.Getsockname(fd); err == nil {
			if at, ok := s.(*syscall.SockaddrInet4); ok && addr == netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)).String() {
				_ = syscall.Shutdown(fd, syscall.SHUT_RDWR)
			}
		}
	}
	brokertest.Eventually(t, time.Minute, "the end", func() bool { return len(ended) > 0 })
	if err := <-ended; err == nil {
		t.Error("it ended as after a stop")
	}
}
