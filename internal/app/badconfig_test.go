package app

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"sidecar/internal/apptest"
	"sidecar/internal/config"
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

// TestBadRoutes: each mistake is a problem of its own, and all are reported at once.
func TestBadRoutes(t *testing.T) {
	t.Parallel()
	refused(t, "because SIDECAR_ROUTES is not set", "SIDECAR_ROUTES_ELSE", "SIDECAR_ROUTES_ELSE=park")
	refused(t, "because SIDECAR_ROUTES is not set", "SIDECAR_SUB_Y_ROUTES_ELSE", "SIDECAR_SUBSCRIPTIONS=x,y", "SIDECAR_SUB_X_ROUTES=a=/a", "SIDECAR_SUB_Y_ROUTES_ELSE=park")
	refused(t, "not one of the words", "SIDECAR_ROUTES_ELSE", "SIDECAR_ROUTES_ELSE=drop", "SIDECAR_ROUTES=a=/a")
	refused(t, `route 2, "b=b": the path must begin`, "SIDECAR_ROUTES", "SIDECAR_ROUTES=a=/a, b=b")
	_, err := judged("SIDECAR_ROUTES=a.#b=/x,=/y,c=/{foo},d=/../e,#=/f,g=/g", "SIDECAR_APP_TIMEOUT=x")
	problems, ok := errors.AsType[*config.Errors](err)
	if !ok || len(problems.Problems) != 6 {
		t.Fatalf("want 6 problems, got:\n%v", err)
	}
	for i, says := range []string{`route 1, "a.#b=/x"`, `route 2, "=/y"`, `route 3, "c=/{foo}"`, `route 4, "d=/../e"`, `route 6, "g=/g"`} {
		if p := problems.Problems[i]; p.Variable != "SIDECAR_ROUTES" || !strings.Contains(p.Reason, says) {
			t.Errorf("want %s in %v", says, p)
		}
	}
	for _, environ := range [][]string{
		{"SIDECAR_ROUTES=a=/a,type:b=/{type}", "SIDECAR_ROUTES_ELSE=ack"},
		{"SIDECAR_SUBSCRIPTIONS=x,y", "SIDECAR_SUB_X_ROUTES=a=/a", "SIDECAR_ROUTES_ELSE=ack"}, // y takes everything
	} {
		if _, err := judged(environ...); err != nil {
			t.Error(err)
		}
	}
	refused(t, "must begin", "SIDECAR_SUB_X_ROUTES", "SIDECAR_SUBSCRIPTIONS=x,y", "SIDECAR_SUB_X_ROUTES=a=a", "SIDECAR_ROUTES=a=/a")
}

// TestBadRates: the messages of all queues that share a rate are POSTed in 15 minutes.
func TestBadRates(t *testing.T) {
	t.Parallel()
	const names, partitions = "SIDECAR_SUBSCRIPTIONS=a,b,c,d", "SIDECAR_SUB_B_PARTITIONS=8"
	refused(t, "is 20 messages in total, which take more than 15m", "SIDECAR_RATE_LIMIT", "SIDECAR_RATE_LIMIT=79/h")
	refused(t, "is 80 messages in total", "SIDECAR_MAX_RATE", "SIDECAR_MAX_RATE=319/h", names)
	refused(t, "is 160 messages in total", "SIDECAR_SUB_B_RATE_LIMIT", "SIDECAR_SUB_B_RATE_LIMIT=639/h", names, partitions, "SIDECAR_SUB_B_ORDER_BY=header:k")
	refused(t, "is 220 messages in total", "SIDECAR_MAX_RATE", "SIDECAR_MAX_RATE=879/h", names, partitions, "SIDECAR_ORDER_BY=header:k")
	for _, environ := range [][]string{
		{"SIDECAR_RATE_LIMIT=80/h", "SIDECAR_MAX_RATE=80/h"},
		{"SIDECAR_MAX_RATE=880/h", "SIDECAR_SUB_B_RATE_LIMIT=640/h", names, partitions, "SIDECAR_ORDER_BY=header:k"},
	} {
		if _, err := judged(environ...); err != nil {
			t.Error(err)
		}
	}
}

// TestTooManyQueues: all queues of a sidecar have their channels on one connection.
func TestTooManyQueues(t *testing.T) {
	t.Parallel()
	environ := []string{"SIDECAR_SUBSCRIPTIONS=a,b,c,d,e,f,g,h", "SIDECAR_ORDER_BY=routing-key", "SIDECAR_PARTITIONS=64", "SIDECAR_SUB_H_PARTITIONS=53"}
	refused(t, "501 queues, partitions included, and one sidecar consumes at most 500", "SIDECAR_SUBSCRIPTIONS", environ...)
	environ[3] = "SIDECAR_SUB_H_PARTITIONS=52"
	if _, err := judged(environ...); err != nil {
		t.Error(err)
	}
}

// TestBadTopologies is the list of configurations that no topology can be built from: each is refused with one line
// that names the variable.
func TestBadTopologies(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ env, says string }{
		{"SIDECAR_SERVICE=" + strings.Repeat("n", 300), "bytes and may have 255"},
		{"SIDECAR_SERVICE=amq-foo", "reserved"}, // its prefix would be amq
		{"SIDECAR_RETRY_DELAYS=none", "SIDECAR_TOPOLOGY=delay-ladder only"},
		{"SIDECAR_DEAD_LETTER=disabled", "SIDECAR_TOPOLOGY=dead-letter only"},
		{"SIDECAR_PREFIX=amq", "reserved"},
		{"SIDECAR_PARTITIONS=4", "needs SIDECAR_ORDER_BY=routing-key"},
	} {
		name, _, _ := strings.Cut(tc.env, "=")
		refused(t, tc.says, name, tc.env)
	}
	for _, tc := range []struct {
		variable, says string
		env            []string
	}{
		{"SIDECAR_ORDER_BY", "a retry delay of the topology is longer than 10m", []string{"SIDECAR_TOPOLOGY=topic-tiers", "SIDECAR_ORDER_BY=queue"}},
		{"SIDECAR_PARTITIONS", "needs SIDECAR_ORDER_BY=routing-key", []string{"SIDECAR_PARTITIONS=4", "SIDECAR_ORDER_BY=queue"}},
		{"SIDECAR_PARTITIONS", "not SIDECAR_ORDER_SCOPE=replica", []string{"SIDECAR_PARTITIONS=4", "SIDECAR_ORDER_BY=header:a", "SIDECAR_ORDER_SCOPE=replica"}},
		{"SIDECAR_PARTITIONS", "retries wait in the sidecar", []string{"SIDECAR_PARTITIONS=4", "SIDECAR_ORDER_BY=header:a", "SIDECAR_RETRY_QUEUE=r"}},
		{"SIDECAR_PARTITIONS", "out of range; allowed: 2 to 64", []string{"SIDECAR_PARTITIONS=1", "SIDECAR_ORDER_BY=header:a"}},
		{"SIDECAR_BINDINGS", "required for SIDECAR_TOPOLOGY=per-queue", []string{"SIDECAR_TOPOLOGY=per-queue"}},
		{"SIDECAR_SERVICE", "may have 255", []string{"SIDECAR_SERVICE=w-" + strings.Repeat("n", 245), "SIDECAR_TOPOLOGY=delay-ladder", "SIDECAR_BINDINGS=a:b"}},
		{"SIDECAR_DLQ", "two queues", []string{"SIDECAR_QUEUE=q", "SIDECAR_DLQ=q"}},
		{"SIDECAR_EXCHANGE", "set SIDECAR_EXCHANGE_TYPE=topic", []string{"SIDECAR_EXCHANGE=amq.topic"}},
		{"SIDECAR_EXCHANGE_TYPE", "needs SIDECAR_BINDINGS", []string{"SIDECAR_EXCHANGE_TYPE=direct"}},
		{"SIDECAR_BINDINGS", "reserved", []string{"SIDECAR_BINDINGS=amq.mine:k"}},
		{"SIDECAR_BINDINGS", "carries retries", []string{"SIDECAR_BINDINGS=wms.retry-exchange.wms-cincout:k"}},
	} {
		refused(t, tc.says, tc.variable, tc.env...)
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
		for _, preset := range []string{"topic-tiers", "delay-ladder"} { // which name the most after others
			if name != "SIDECAR_TOPOLOGY" && name != "SIDECAR_MESSAGE_TTL" && name != "SIDECAR_RETRY_DELAY" {
				refused(t, "", name, env, "SIDECAR_TOPOLOGY="+preset, "SIDECAR_BINDINGS=a:b")
			}
		}
	}
	refused(t, "", "SIDECAR_RETRY_DELAY", "SIDECAR_TOPOLOGY=topic-tiers", "SIDECAR_RETRY_DELAY=1s", "SIDECAR_RETRY_DELAYS=1s,2s")
	refused(t, "", "SIDECAR_BINDINGS", "SIDECAR_TOPOLOGY=per-queue", "SIDECAR_BINDINGS=orders")
	refused(t, "", "SIDECAR_TOPOLOGY", "SIDECAR_TOPOLOGY=ring", "SIDECAR_QUEUE=q", "SIDECAR_DLQ=q", "SIDECAR_DEAD_LETTER=disabled")
}

// TestAllInOneGo: variables that are wrong alone and those that the topology cannot do with are in one list.
func TestAllInOneGo(t *testing.T) {
	t.Parallel()
	_, err := judged("SIDECAR_TOPOLOGY=dead-letter", "SIDECAR_QUEUE=a\nb", "SIDECAR_LOG_LEVEL=loud", "SIDECAR_RETRY_DELAYS=none", "SIDECAR_APP_TIMEOUT=5")
	want := []string{
		`SIDECAR_APP_TIMEOUT="5": not a duration`,
		`SIDECAR_RETRY_DELAYS="none": none is for SIDECAR_TOPOLOGY=delay-ladder only; with SIDECAR_MAX_RETRIES=0 the first failure parks; allowed: `,
		`SIDECAR_QUEUE="a\nb": holds a control character; allowed: `,
		`SIDECAR_BINDINGS: required for SIDECAR_TOPOLOGY=dead-letter and not set; allowed: `,
		`SIDECAR_LOG_LEVEL="loud": not one of the words`,
	}
	if err == nil {
		t.Fatal("accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%v", len(lines), len(want), err)
	}
	for i, line := range lines {
		if !strings.HasPrefix(line, want[i]) {
			t.Errorf("line %d:\n got %s\nwant %s", i, line, want[i])
		}
	}
}

// TestTopologiesThatLookBadAndAreNot.
func TestTopologiesThatLookBadAndAreNot(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 236)
	for _, env := range [][]string{
		{"SIDECAR_SERVICE=noprefix"}, {"SIDECAR_SERVICE=a-"}, {"SIDECAR_SERVICE=a-" + long}, {"SIDECAR_SERVICE=w-" + long},
		{"SIDECAR_QUEUE=" + strings.Repeat("q", 255)}, {"SIDECAR_MAX_RETRIES=0"}, {"SIDECAR_RETRY_DELAY=1193h2m47.295s"}, {"SIDECAR_DEAD_LETTER=enabled"},
		{"SIDECAR_SERVICE=nohyphen", "SIDECAR_TOPOLOGY=topic-tiers"}, {"SIDECAR_EXCHANGE=amq.topic", "SIDECAR_EXCHANGE_TYPE=topic"},
		{"SIDECAR_TOPOLOGY=delay-ladder", "SIDECAR_BINDINGS=a:b", "SIDECAR_RETRY_DELAYS=none"},
		{"SIDECAR_TOPOLOGY=dead-letter", "SIDECAR_BINDINGS=a:b", "SIDECAR_QUEUE=q", "SIDECAR_MESSAGE_TTL=1h", "SIDECAR_DEAD_LETTER=disabled"},
	} {
		cfg, err := judged(env...)
		if err != nil {
			t.Errorf("%q: %v", env, err)
			continue
		}
		if _, err := newPlan(cfg); err != nil {
			t.Errorf("%q: %v", env, err)
		}
	}
}

// TestUnjudgedConfiguration: a caller that loads without the rule gets the error from the plan, and in time.
func TestUnjudgedConfiguration(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load([]string{"SIDECAR_SERVICE=wms-cincout", "SIDECAR_TOPOLOGY=per-queue"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, use := range map[string]func() error{
		"New":          func() error { _, err := New(cfg, Build{}, &apptest.Log{}); return err },
		"RenderPlan":   func() error { _, err := RenderPlan(cfg, "text"); return err },
		"PresetValues": func() error { _, _, err := PresetValues(cfg); return err },
		"Explain":      func() error { _, err := Explain(cfg, Question{Status: 200}); return err },
		"Check":        func() error { return Check(t.Context(), cfg, &apptest.Log{}, false, plain) },
	} {
		if err := use(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "SIDECAR_BINDINGS") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBadOutbox: a connection string that cannot be used is one problem among all others, and shows no password.
func TestBadOutbox(t *testing.T) {
	t.Parallel()
	for dsn, says := range map[string]string{
		"postgres://u:s3cr3t@db/shop?sslmode=maybe": "sslmode is invalid",
		"postgres://u:s3cr3t@db:port/shop":          "invalid port",
		"s3cr3t":                                    "not of the form",
	} {
		refused(t, says, "SIDECAR_OUTBOX_DSN", "SIDECAR_OUTBOX_DSN="+dsn)
	}
}

// TestOutboxWarnings: a way on which the password may be read is worth a line, one on this machine or by TLS is not.
func TestOutboxWarnings(t *testing.T) {
	t.Parallel()
	for dsn, warned := range map[string]bool{
		"": false, "postgres://u:p@db.example/shop": true, "postgres://u:p@db.example/shop?sslmode=verify-full": false,
		"postgres://u:p@127.0.0.1/shop?sslmode=disable": false, "host=/run/postgresql dbname=shop": false,
	} {
		cfg, err := judged("SIDECAR_OUTBOX_DSN=" + dsn)
		if err != nil {
			t.Fatal(err)
		}
		w := outboxWarnings(cfg)
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
	if _, err := judged("SIDECAR_PASSTHROUGH_HEADERS=trace*,baggage,x-tenant-*"); err != nil {
		t.Error(err)
	}
}
