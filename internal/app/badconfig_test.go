package app

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"sidecar/internal/config"
	"sidecar/internal/testkit/must"
)

// judged loads a configuration as the sidecar does.
func judged(environ ...string) (*config.Config, error) {
	return config.Load(append(environ, "SIDECAR_SERVICE=wms-cincout"), 0, Rule)
}

// refused demands that environ is refused with exactly one problem, with the variable, whose line contains says.
func refused(t *testing.T, says, variable string, environ ...string) {
	t.Helper()
	_, err := judged(environ...)
	problems, ok := errors.AsType[*config.Errors](err)
	if !ok || len(problems.Problems) != 1 || problems.Problems[0].Variable != variable || strings.Contains(err.Error(), "\n") {
		t.Fatalf("load %q: want one problem with %s, got:\n%v", environ, variable, err)
	}
	if !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("%q: want %q in %v", environ, says, err)
	}
}

// accepted demands that there is no problem with environ, and that a topology comes from it.
func accepted(t *testing.T, environ ...string) {
	t.Helper()
	cfg, err := judged(environ...)
	if err == nil {
		_, err = newPlan(cfg)
	}
	if err != nil {
		t.Errorf("%q: %v", environ, err)
	}
}

// TestBadRoutes: each mistake is a problem of its own, and all are reported at once. Package dispatch has all mistakes.
func TestBadRoutes(t *testing.T) {
	t.Parallel()
	const unused = "because SIDECAR_ROUTES is not set"
	refused(t, unused, "SIDECAR_ROUTES_ELSE", "SIDECAR_ROUTES_ELSE=park")
	refused(t, unused, "SIDECAR_SUB_Y_ROUTES_ELSE", "SIDECAR_SUBSCRIPTIONS=x,y", "SIDECAR_SUB_X_ROUTES=a=/a", "SIDECAR_SUB_Y_ROUTES_ELSE=park")
	refused(t, `route 2, "b=b": the path must begin`, "SIDECAR_ROUTES", "SIDECAR_ROUTES=a=/a, b=b")
	refused(t, "must begin", "SIDECAR_SUB_X_ROUTES", "SIDECAR_SUBSCRIPTIONS=x,y", "SIDECAR_SUB_X_ROUTES=a=a", "SIDECAR_ROUTES=a=/a")
	accepted(t, "SIDECAR_ROUTES=a=/a,type:b=/{type}", "SIDECAR_ROUTES_ELSE=ack")
	accepted(t, "SIDECAR_SUBSCRIPTIONS=x,y", "SIDECAR_SUB_X_ROUTES=a=/a", "SIDECAR_ROUTES_ELSE=ack") // y takes everything
	_, err := judged("SIDECAR_ROUTES=a.#b=/x,=/y", "SIDECAR_APP_TIMEOUT=x")
	problems, _ := errors.AsType[*config.Errors](err)
	if problems == nil || len(problems.Problems) != 3 || problems.Problems[1].Variable != "SIDECAR_ROUTES" {
		t.Errorf("want 3 problems, got:\n%v", err)
	}
}

// TestBadRates: the messages of all queues that share a rate are POSTed in 15 minutes.
func TestBadRates(t *testing.T) {
	t.Parallel()
	refused(t, "SIDECAR_PREFETCH to 19 at most", "SIDECAR_RATE_LIMIT", "SIDECAR_RATE_LIMIT=79/h")
	accepted(t, "SIDECAR_RATE_LIMIT=80/h")
}

// TestBadTopologies: what topology.ValidateOptions finds, which has its own tests, or what does not fit how retries wait
// is refused with one line that names the variable, for every variable that the topology is made from.
func TestBadTopologies(t *testing.T) {
	t.Parallel()
	const inOrder = "cannot be combined with a queue that delays messages itself: after a lost connection they would be out of order"
	for _, tc := range []struct{ variable, says, env string }{
		{"SIDECAR_SERVICE", "reserved", "SIDECAR_SERVICE=amq-foo"}, // its prefix would be amq
		{"SIDECAR_PREFIX", "reserved", "SIDECAR_PREFIX=amq"},
		{"SIDECAR_RETRY_DELAYS", "SIDECAR_TOPOLOGY=delay-ladder only", "SIDECAR_RETRY_DELAYS=none"},
		{"SIDECAR_DEAD_LETTER", "SIDECAR_TOPOLOGY=dead-letter only", "SIDECAR_DEAD_LETTER=disabled"},
		{"SIDECAR_ORDER_BY", "and topic-tiers waits 30s, 5m, 30m: set SIDECAR_RETRY_DELAYS=30s,5m,10m", "SIDECAR_TOPOLOGY=topic-tiers SIDECAR_ORDER_BY=queue"},
		{"SIDECAR_ORDER_BY", "and fanout waits 1h: set SIDECAR_RETRY_DELAY=10m", "SIDECAR_RETRY_DELAY=1h SIDECAR_ORDER_BY=queue"},
		{"SIDECAR_SUB_A_ORDER_BY", "30m, 1h: set SIDECAR_SUB_A_RETRY_DELAYS=1s,10m", "SIDECAR_SUBSCRIPTIONS=a,b SIDECAR_RETRY_DELAYS=1s,30m,1h SIDECAR_SUB_A_ORDER_BY=queue"},
		{"SIDECAR_SUB_A_ORDER_BY", inOrder + ". Every other SIDECAR_SUB_A_TOPOLOGY keeps", "SIDECAR_SUBSCRIPTIONS=a,b SIDECAR_TOPOLOGY=native SIDECAR_SUB_A_ORDER_BY=queue"},
		{"SIDECAR_BINDINGS", "required for SIDECAR_TOPOLOGY=per-queue", "SIDECAR_TOPOLOGY=per-queue"},
		{"SIDECAR_DLQ", "has two roles", "SIDECAR_QUEUE=q SIDECAR_DLQ=q"},
		{"SIDECAR_EXCHANGE", "of type topic, not fanout: set that type", "SIDECAR_EXCHANGE=amq.topic"},
		{"SIDECAR_EXCHANGE_TYPE", "needs SIDECAR_BINDINGS", "SIDECAR_EXCHANGE_TYPE=direct"},
		{"SIDECAR_BINDINGS", "carries retries", "SIDECAR_BINDINGS=wms.retry-exchange.wms-cincout:k"},
		{"SIDECAR_ORDER_BY", `="queue": ` + inOrder, "SIDECAR_TOPOLOGY=native SIDECAR_ORDER_BY=queue"},
		{"SIDECAR_TOPOLOGY", "leave SIDECAR_RETRY_EXCHANGE and SIDECAR_RETRY_QUEUE out", "SIDECAR_TOPOLOGY=native SIDECAR_RETRY_EXCHANGE=x"},
		{"SIDECAR_TOPOLOGY", "leave SIDECAR_RETRY_EXCHANGE and SIDECAR_RETRY_QUEUE out", "SIDECAR_TOPOLOGY=native SIDECAR_RETRY_QUEUE=x"},
		{"SIDECAR_QUEUE_TYPE", "must be a quorum queue to delay messages itself", "SIDECAR_TOPOLOGY=native SIDECAR_QUEUE_TYPE=classic"},
		{"SIDECAR_RETRY_DELAYS", "two for native, the shortest and the longest", "SIDECAR_TOPOLOGY=native SIDECAR_RETRY_DELAYS=1s,2s,3s"},
		{"SIDECAR_RETRY_DELAYS", "two for native, the shortest and the longest", "SIDECAR_TOPOLOGY=native SIDECAR_RETRY_DELAYS=1s"},
		{"SIDECAR_QUEUE_ARGUMENTS", "is set by the topology", "SIDECAR_TOPOLOGY=native SIDECAR_QUEUE_ARGUMENTS=x-delayed-retry-min=5"},
	} {
		refused(t, tc.says, tc.variable, strings.Fields(tc.env)...)
	}
	for _, env := range []string{
		"SIDECAR_SERVICE=nohyphen SIDECAR_TOPOLOGY=topic-tiers", "SIDECAR_EXCHANGE=amq.topic SIDECAR_EXCHANGE_TYPE=topic",
		"SIDECAR_RETRY_DELAY=1193h2m47.295s", "SIDECAR_TOPOLOGY=delay-ladder SIDECAR_BINDINGS=a:b SIDECAR_RETRY_DELAYS=none",
		"SIDECAR_TOPOLOGY=dead-letter SIDECAR_BINDINGS=a:b SIDECAR_QUEUE=q SIDECAR_MESSAGE_TTL=1h SIDECAR_DEAD_LETTER=disabled",
	} {
		accepted(t, strings.Fields(env)...)
	}
}

// TestOneProblemEach: what the topology makes of a bad value is no second problem.
func TestOneProblemEach(t *testing.T) {
	t.Parallel()
	for _, env := range []string{
		"SIDECAR_SERVICE=a b", "SIDECAR_SERVICE=amq.foo", "SIDECAR_TOPOLOGY=ring", "SIDECAR_QUEUE_TYPE=stream", "SIDECAR_EXCHANGE_TYPE=ring",
		"SIDECAR_DEAD_LETTER=yes", "SIDECAR_MESSAGE_TTL=-1s", "SIDECAR_MAX_RETRIES=-1", "SIDECAR_RETRY_DELAY=0s", "SIDECAR_RETRY_DELAY=1500us",
		"SIDECAR_RETRY_DELAYS=5s,2s", "SIDECAR_RETRY_DELAYS=0s", "SIDECAR_PREFIX=amq.", "SIDECAR_QUEUE=a\nb", "SIDECAR_DLQ=amq.dlq",
		"SIDECAR_QUEUE=" + strings.Repeat("q", 300), "SIDECAR_EXCHANGE=amq.mine", "SIDECAR_RETRY_EXCHANGE=a\xff", "SIDECAR_BINDINGS=orders",
	} {
		name, _, _ := strings.Cut(env, "=")
		refused(t, "", name, env)
		for _, preset := range []string{"topic-tiers", "delay-ladder", "per-queue"} { // which name the most after others
			if name != "SIDECAR_TOPOLOGY" && name != "SIDECAR_MESSAGE_TTL" && name != "SIDECAR_RETRY_DELAY" {
				refused(t, "", name, env, "SIDECAR_TOPOLOGY="+preset, "SIDECAR_BINDINGS=a:b")
			}
		}
	}
	refused(t, "", "SIDECAR_RETRY_DELAY", "SIDECAR_TOPOLOGY=topic-tiers", "SIDECAR_RETRY_DELAY=1s", "SIDECAR_RETRY_DELAYS=1s,2s")
	refused(t, "", "SIDECAR_BINDINGS", "SIDECAR_TOPOLOGY=per-queue", "SIDECAR_BINDINGS=orders")
	refused(t, "", "SIDECAR_TOPOLOGY", "SIDECAR_TOPOLOGY=ring", "SIDECAR_QUEUE=q", "SIDECAR_DLQ=q", "SIDECAR_DEAD_LETTER=disabled")
}

// TestBadOutbox: a connection string that cannot be used is one problem among all others, and shows no password.
func TestBadOutbox(t *testing.T) {
	t.Parallel()
	refused(t, "sslmode is invalid", "SIDECAR_OUTBOX_DSN", "SIDECAR_OUTBOX_DSN=postgres://u:s3cr3t@db/shop?sslmode=maybe")
	refused(t, "not of the form", "SIDECAR_OUTBOX_DSN", "SIDECAR_OUTBOX_DSN=s3cr3t")
}

// TestOutboxWarnings: a way on which the password may be read is worth a line, none or another one is not.
func TestOutboxWarnings(t *testing.T) {
	t.Parallel()
	for dsn, warned := range map[string]bool{
		"": false, "postgres://u:p@db.example/shop": true, "postgres://u:p@db.example/shop?sslmode=verify-full": false,
	} {
		w := outboxWarnings(must.Get(judged("SIDECAR_OUTBOX_DSN=" + dsn))(t))
		if len(w) > 0 != warned || warned && (!strings.Contains(w[0], "db.example") || !strings.HasPrefix(w[0], "SIDECAR_OUTBOX_DSN")) {
			t.Errorf("%q: %q", dsn, w)
		}
	}
}

// TestTraceCollectorCertificates: a file that is gone since the configuration was read ends the start.
func TestTraceCollectorCertificates(t *testing.T) {
	t.Parallel()
	cfg := load(t, "OTEL_EXPORTER_OTLP_ENDPOINT=https://127.0.0.1:1")
	cfg.Tracing.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	if _, err := New(cfg, Build{}, io.Discard); !errors.Is(err, ErrConfig) || !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestPassthroughThatSetsAHeaderOfHTTP: a pattern that would let a message set such a header is refused, one that matches
// a trace context is not.
func TestPassthroughThatSetsAHeaderOfHTTP(t *testing.T) {
	t.Parallel()
	for pattern, says := range map[string]string{
		"*": "would let a message set the header host", "x-*": "x-forwarded-for", "?ost": "header host", "X_Forwarded_For": "x-forwarded",
		"Content-MD5": "content-", "amqp-foo": "amqp-", "c*": "content-length", "*-id": "ce-id",
	} {
		refused(t, says, "SIDECAR_PASSTHROUGH_HEADERS", "SIDECAR_PASSTHROUGH_HEADERS=x-tenant,"+pattern)
	}
	accepted(t, "SIDECAR_PASSTHROUGH_HEADERS=trace*,baggage,x-tenant-*")
}
