package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

// load reads a configuration that has a service name and environ on top.
func load(t testing.TB, environ ...string) *Config {
	t.Helper()
	return must.Get(Load(append(environ, "SIDECAR_SERVICE=wms-cincout"), 0))(t)
}

// refuse demands that environ is refused with exactly one problem, with the variable, and returns its line.
func refuse(t testing.TB, variable string, environ ...string) string {
	t.Helper()
	c, err := Load(append(environ, "SIDECAR_SERVICE=wms-cincout"), 0)
	problems, ok := errors.AsType[*Errors](err)
	if !ok || c != nil || len(problems.Problems) != 1 || problems.Problems[0].Variable != variable || strings.Contains(err.Error(), "\n") {
		t.Fatalf("load %q: want one problem with %s and no configuration, got %v and:\n%v", environ, variable, c != nil, err)
	}
	return err.Error()
}

// refuseSaying is refuse whose line must contain says, and no secret.
func refuseSaying(t testing.TB, says, variable string, environ ...string) {
	t.Helper()
	if line := refuse(t, variable, environ...); !strings.Contains(line, says) || strings.Contains(line, canary) {
		t.Errorf("%q: want %q in %s", environ, says, line)
	}
}

func TestDefaultsAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	c := load(t)
	urls, err := c.AMQP.URLs()
	if err != nil || len(urls) != 1 || urls[0] != "amqp://guest:guest@127.0.0.1:5672/" {
		t.Errorf("URLs: %q, %v", urls, err)
	}
	if c.AMQP.Username.IsSet() || c.AMQP.External() {
		t.Errorf("AMQP: %+v", c.AMQP)
	}
	a := c.App
	if a.URL != "http://127.0.0.1:8080/" || a.Timeout != 30*time.Second || a.HealthPath != "" ||
		a.HealthInterval != time.Second || a.Token.IsSet() {
		t.Errorf("App: %+v", a)
	}
	if w := (Window{
		Concurrency: 10, Prefetch: 20, MaxBody: 16 << 20, Memory: 256 << 20, SpoolDir: "/tmp",
		BatchSize: 1, BatchWait: 20 * time.Millisecond, BatchFormat: "jsonl",
	}); c.Window != w {
		t.Errorf("Window: %+v", c.Window)
	}
	r := c.Retry
	if r.MaxRetries != nil || r.Delay != 0 || r.Delays != nil || r.ParkOnStatus != nil || r.AppDown != AppDownHold ||
		r.RequeueDelayMax != 5*time.Second || r.RetryAfterMax != 5*time.Minute {
		t.Errorf("Retry: %+v", r)
	}
	p := c.Topology
	if p.Preset != "fanout" || p.Mode != "declare" || p.QueueType != "auto" || p.QueueArguments != nil || p.DeadLetter != "enabled" || p.Bindings != nil || p.MessageTTL != 0 {
		t.Errorf("Topology: %+v", p)
	}
	q := c.Request
	if strings.Join(q.ForwardHeaders, ",") != "*" || strings.Join(q.PassthroughHeaders, ",") != "traceparent,tracestate,baggage" || q.CloudEvents != "off" {
		t.Errorf("Request: %+v", q)
	}
	if l := c.Listen; l.AdminAddr != ":9090" || l.ControlAddr != "127.0.0.1:9091" || l.ControlToken.IsSet() || l.ControlReadToken.IsSet() {
		t.Errorf("Listen: %+v", l)
	}
	if p := (Process{ShutdownGrace: 25 * time.Second, LogLevel: "info", LogFormat: "auto"}); c.Process != p {
		t.Errorf("Process: %+v", c.Process)
	}
	if w := c.Warnings(); c.Tracing != nil || len(w) != 0 {
		t.Errorf("tracing %v, warnings: %q", c.Tracing, w)
	}
}

func TestEveryVariableCanBeSet(t *testing.T) {
	t.Parallel()
	c := load(
		t, "SIDECAR_MAX_RETRIES=0", "SIDECAR_RETRY_DELAYS=1s, 2m", "SIDECAR_PARK_ON_STATUS=400,413,422", "SIDECAR_APP_DOWN=retry",
		"SIDECAR_REQUEUE_DELAY_MAX=250ms", "SIDECAR_RETRY_AFTER_MAX=1m30s",
		"SIDECAR_BINDINGS=a:b.*,a:c:d,e:", "SIDECAR_EXCHANGE=amq.topic", "SIDECAR_EXCHANGE_TYPE=headers", "SIDECAR_QUEUE_TYPE=quorum",
		"SIDECAR_MAX_BODY=1KiB", "SIDECAR_CONCURRENCY=7", "SIDECAR_FORWARD_HEADERS=x-*,App.Id", "SIDECAR_PASSTHROUGH_HEADERS=x-tenant-*",
	)
	if r := c.Retry; *r.MaxRetries != 0 || len(r.Delays) != 2 || r.Delays[1] != 2*time.Minute || len(r.ParkOnStatus) != 3 || r.ParkOnStatus[2] != 422 ||
		r.AppDown != AppDownRetry || r.RetryAfterMax != 90*time.Second {
		t.Errorf("Retry: %+v", r)
	}
	want := []Binding{{"a", "b.*"}, {"a", "c:d"}, {"e", ""}}
	if b := c.Topology.Bindings; len(b) != 3 || b[0] != want[0] || b[1] != want[1] || b[2] != want[2] {
		t.Errorf("Bindings: %+v", b)
	}
	if c.Window.Prefetch != 14 || c.Window.MaxBody != 1024 {
		t.Errorf("Window: %+v", c.Window)
	}
	if c := load(t, "SIDECAR_TOPOLOGY=delay-ladder", "SIDECAR_BINDINGS=a:b", "SIDECAR_RETRY_DELAYS=none"); c.Retry.Delays == nil || len(c.Retry.Delays) != 0 {
		t.Errorf("none gives %#v", c.Retry.Delays)
	}
	for _, preset := range []string{"fanout", "topic-tiers", "per-queue", "delay-ladder", "dead-letter", "native"} {
		load(t, "SIDECAR_TOPOLOGY="+preset, "SIDECAR_BINDINGS=a:b", "SIDECAR_QUEUE=q")
	}
	d := load(t, "SIDECAR_TOPOLOGY=dead-letter", "SIDECAR_BINDINGS=a:b", "SIDECAR_QUEUE=q", "SIDECAR_MESSAGE_TTL=1h", "SIDECAR_DEAD_LETTER=disabled")
	if d.Topology.MessageTTL != time.Hour || d.Topology.DeadLetter != Disabled {
		t.Errorf("dead-letter: %+v", d.Topology)
	}
}

func TestEmptyMeansUnset(t *testing.T) {
	t.Parallel()
	var environ []string
	for _, s := range Describe() {
		for _, v := range s.Variables {
			environ = append(environ, v.Name+"=")
			if v.FileVariant() != "" {
				environ = append(environ, v.FileVariant()+"=")
			}
		}
	}
	load(t, append(environ[1:], "SIDECAR_NO_SUCH_NAME=")...)
	if _, err := Load(environ, 0); err == nil || !strings.Contains(err.Error(), "SIDECAR_SERVICE: required") {
		t.Errorf("an empty service name: %v", err)
	}
}

// TestOnlyTheArgumentIsRead guards against the library's habit of falling back to the process's environment.
func TestOnlyTheArgumentIsRead(t *testing.T) {
	t.Setenv("SIDECAR_SERVICE", "from-process")
	t.Setenv("SIDECAR_CONCURRENCY", "99")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
	if _, err := Load(nil, 0); err == nil {
		t.Error("the process's environment was read")
	}
	if c := load(t, "no equals sign", "=odd", "CONCURRENCY=5"); c.Window.Concurrency != 10 || c.Tracing != nil {
		t.Errorf("the process's environment was read: %+v", c)
	}
}

// TestOrderOfAQueue: one message at a time, which is shown, and a warning when a larger concurrency was set.
func TestOrderOfAQueue(t *testing.T) {
	t.Parallel()
	for env, warnings := range map[string]int{"SIDECAR_CONCURRENCY=1": 0, "SIDECAR_CONCURRENCY=8": 1, "SIDECAR_LOG_LEVEL=info": 0} {
		c := load(t, "SIDECAR_ORDER_BY=queue", env)
		if c.Window.Concurrency != 1 || c.Window.Prefetch != 2 || len(c.Warnings()) != warnings {
			t.Errorf("%s: concurrency %d, prefetch %d, warnings %q", env, c.Window.Concurrency, c.Window.Prefetch, c.Warnings())
		}
		shows(t, c, []Setting{{Name: "SIDECAR_CONCURRENCY", Value: "1", Origin: "derived"}})
	}
}

// TestBatches: the window grows with the batches, and settings that keep them small or have no effect get a warning.
func TestBatches(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		env      string
		prefetch int
		warning  string // its start
	}{
		{"SIDECAR_BATCH_SIZE=50", 1000, ""},
		{"SIDECAR_BATCH_SIZE=50 SIDECAR_PREFETCH=500", 500, ""},
		{"SIDECAR_BATCH_SIZE=1000 SIDECAR_CONCURRENCY=33 SIDECAR_MEMORY=1GiB", 65535, ""},
		{"SIDECAR_BATCH_SIZE=1000 SIDECAR_CONCURRENCY=100 SIDECAR_PREFETCH=65535 SIDECAR_MEMORY=2GiB", 65535, ""},
		{"SIDECAR_BATCH_SIZE=50 SIDECAR_PREFETCH=499", 499, "SIDECAR_PREFETCH: is less than SIDECAR_CONCURRENCY times SIDECAR_BATCH_SIZE, which is 500"},
		{"SIDECAR_BATCH_SIZE=1000 SIDECAR_MEMORY=96MiB", 20000, "SIDECAR_BATCH_SIZE: 10 POSTs with 1MiB of bodies may need 90MiB"},
		{"SIDECAR_BATCH_SIZE=2 SIDECAR_MEMORY=31MiB SIDECAR_CONCURRENCY=1", 4, "SIDECAR_MAX_BODY: with SIDECAR_BATCH_SIZE a message of more than 10MiB may be parked as too_large: its POST takes three times its body from SIDECAR_MEMORY, which is 31MiB"},
		{"SIDECAR_BATCH_SIZE=2 SIDECAR_MEMORY=31MiB SIDECAR_CONCURRENCY=1 SIDECAR_MAX_BODY=10MiB", 4, ""},
		{"SIDECAR_BATCH_SIZE=2 SIDECAR_ORDER_BY=routing-key", 200, ""},
		{"SIDECAR_ORDER_BY=routing-key SIDECAR_PREFETCH=auto", 100, ""},
		{"SIDECAR_ORDER_BY=routing-key SIDECAR_MEMORY=4MiB SIDECAR_MAX_BODY=1MiB", 20, ""},
		{"SIDECAR_BATCH_WAIT=0s", 20, "SIDECAR_BATCH_WAIT: has no effect while SIDECAR_BATCH_SIZE is 1"},
		{"SIDECAR_BATCH_FORMAT=cloudevents", 20, "SIDECAR_BATCH_FORMAT: has no effect"},
	} {
		c := load(t, strings.Fields(tc.env)...)
		w := c.Warnings()
		if c.Window.Prefetch != tc.prefetch || len(w) > 1 || (len(w) == 1) != (tc.warning != "") ||
			!strings.HasPrefix(strings.Join(w, ""), tc.warning) {
			t.Errorf("%s: prefetch %d, warnings %q", tc.env, c.Window.Prefetch, w)
		}
	}
	c := load(t, "SIDECAR_SUBSCRIPTIONS=orders,refunds", "SIDECAR_QUEUE=q.{subscription}", "SIDECAR_SUB_ORDERS_BATCH_SIZE=100", "SIDECAR_PREFETCH=auto",
		"SIDECAR_SUB_REFUNDS_PREFETCH=20")
	if o, r := c.Subscriptions[0], c.Subscriptions[1]; o.LongPrefetch != 1000 || r.LongPrefetch != 0 {
		t.Errorf("for long attempts: %d, %d", o.LongPrefetch, r.LongPrefetch)
	}
	shows(t, c.Subscriptions[0], []Setting{{Name: "SIDECAR_PREFETCH", Value: "auto", Origin: "environment", Variable: "SIDECAR_PREFETCH", Own: true}})
	if o, r := c.Subscriptions[0].Window, c.Subscriptions[1].Window; o.BatchSize != 100 || o.Prefetch != 2000 || r.BatchSize != 1 ||
		r.Prefetch != 20 {
		t.Errorf("orders: %+v, refunds: %+v", o, r)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ env, want string }{
		{"SIDECAR_APP_URL=http://app.example:80/", "SIDECAR_APP_URL: the app is not on this machine: messages leave it, unencrypted"},
		{"SIDECAR_APP_URL=https://app.example/", "SIDECAR_APP_URL: the app is not on this machine: messages leave it"},
		{"SIDECAR_AMQP_URL=amqp://me:pw@rabbit/", "SIDECAR_AMQP_URL: the link to the broker is not encrypted"},
		{"SIDECAR_MANAGEMENT_URL=http://rabbit/", "SIDECAR_MANAGEMENT_URL: the password is sent unencrypted"},
		{"SIDECAR_AMQP_URL=amqps://guest:pw@rabbit/", "SIDECAR_AMQP_URL: the user guest is refused"},
		{"SIDECAR_AMQP_URL=amqps://rabbit", "SIDECAR_AMQP_URL: the user guest is refused"},
	} {
		if w := load(t, tc.env).Warnings(); len(w) != 1 || !strings.HasPrefix(w[0], tc.want) {
			t.Errorf("%s: warnings %q", tc.env, w)
		}
	}
	for _, quiet := range []string{
		"SIDECAR_SERVICE=default-x", "SIDECAR_AMQP_URL=amqp://localhost", "SIDECAR_AMQP_URL=amqp://[::1]:5672/%2f",
		"SIDECAR_APP_URL=http://localhost:3000/", "SIDECAR_APP_URL=http://[::1]:3000", "SIDECAR_APP_URL=unix:///run/a.sock:/x?y=1",
		"SIDECAR_APP_URL=unix:///run/a.sock", "SIDECAR_APP_URL=https://127.1.2.3/a.b/..c", "SIDECAR_ADMIN_ADDR=:0", "SIDECAR_CONTROL_ADDR=[::1]:0",
		"SIDECAR_CONTROL_ADDR=localhost:80", "SIDECAR_AMQP_URL=amqps://me:p%40%2f%3a@rabbit-0.example:5671/a%2fb, amqps://me@10.0.0.1",
	} {
		if w := load(t, quiet).Warnings(); len(w) != 0 {
			t.Errorf("%s: warnings %q", quiet, w)
		}
	}
}

func TestSeveralWarnings(t *testing.T) {
	t.Parallel()
	c := load(t, "SIDECAR_APP_URL=http://app/", "SIDECAR_APP_TOKEN=abc", "SIDECAR_CONTROL_ADDR=:9091", "SIDECAR_CONTROL_TOKEN=0123456789abcdef")
	if w := strings.Join(c.Warnings(), "\n"); strings.Count(w, "\n") != 2 || !strings.Contains(w, "SIDECAR_APP_TOKEN: goes over") ||
		!strings.Contains(w, "SIDECAR_CONTROL_ADDR: can be reached") {
		t.Errorf("warnings:\n%s", w)
	}
}

// TestKernelFiles: files of /proc and /sys pass as regular ones, and some of them block. The first cannot be opened,
// even by root.
func TestKernelFiles(t *testing.T) {
	t.Parallel()
	for path, says := range map[string]string{
		"/proc/sys/net/ipv4/route/flush": "kernel's", "/proc/kmsg": "", "/proc/self/mem": "kernel's", "/proc/self/environ": "kernel's",
		"/sys/kernel/mm/transparent_hugepage/enabled": "kernel's",
	} {
		refuseSaying(t, says, "SIDECAR_AMQP_PASSWORD_FILE", "SIDECAR_AMQP_PASSWORD_FILE="+path)
	}
}

// TestKernelFilesByARelativePath: the path of a secret may begin at the working directory.
func TestKernelFilesByARelativePath(t *testing.T) {
	t.Chdir("/")
	for _, path := range []string{"proc/version", "sys/kernel/mm/transparent_hugepage/enabled"} {
		if _, _, err := readRegular(path, 1<<10); err == nil {
			t.Errorf("%s is read as a regular file", path)
		}
	}
}
