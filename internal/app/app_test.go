package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
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
	return must.Get(config.Load(environ, 0, Rule))(t)
}

// live is load for the test's own virtual host, with an app that answers 200 where more names none.
func live(t *testing.T, more ...string) *config.Config {
	t.Helper()
	if !slices.ContainsFunc(more, func(set string) bool { return strings.HasPrefix(set, "SIDECAR_APP_URL=") }) {
		more = append(more, "SIDECAR_APP_URL="+apptest.NewApp(t).URL)
	}
	return load(t, append(more, "SIDECAR_AMQP_URL="+brokertest.URL(t))...)
}

// account is a user of the broker, and live's configuration with that user.
func account(t *testing.T, more ...string) (user string, cfg *config.Config) {
	t.Helper()
	user = brokertest.User(t, "secret")
	return user, live(t, append(more, "SIDECAR_AMQP_URL="+brokertest.URLAs(t, user, "secret"))...)
}

// run runs a sidecar until the test stops it.
func run(t *testing.T, cfg *config.Config, edits ...func(*App)) (*App, *apptest.Log, func() error) {
	t.Helper()
	log := &apptest.Log{}
	a := must.Get(New(cfg, Build{Version: "test", Commit: "none"}, log))(t)
	for _, edit := range edits {
		edit(a)
	}
	return a, log, serve(t, a, log)
}

// consuming is run, and waits until the queue is consumed.
func consuming(t *testing.T, cfg *config.Config, edits ...func(*App)) (*App, *subscription, *apptest.Log) {
	t.Helper()
	a, log, _ := run(t, cfg, edits...)
	brokertest.Eventually(t, time.Minute, "consuming", a.subscriptions[0].consumer.Active)
	return a, a.subscriptions[0], log
}

// checkEvery sets the pause between two checks of the topology.
func checkEvery(pause time.Duration) func(*App) {
	return func(a *App) { a.subscriptions[0].checkEvery = pause }
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
	a := must.Get(New(cfg, Build{}, &apptest.Log{}))(t)
	t.Cleanup(a.abandon)
	return a
}

// rendered is the plan in a format.
func rendered(t *testing.T, format string, more ...string) string {
	t.Helper()
	return must.Get(RenderPlan(load(t, more...), format))(t)
}

func withID(id string) amqp.Publishing { return amqp.Publishing{MessageId: id} }

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
