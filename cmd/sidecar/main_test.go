package main

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"sidecar/internal/testkit/must"
)

func TestMain(m *testing.M) {
	cobra.EnableCommandSorting = false // as main does
	os.Exit(m.Run())
}

// callSidecar runs the command line in this process.
func callSidecar(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, environ, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// wantCall runs the command line, checks its exit code and what it prints, which must not be a password, and returns
// what it wrote to standard error.
func wantCall(t *testing.T, environ, args []string, code int, stdout, stderr string) (errors string) {
	t.Helper()
	exit, out, errs := callSidecar(t, environ, args...)
	if exit != code || !strings.Contains(out, stdout) || !strings.Contains(errs, stderr) {
		t.Errorf("%q: exit %d, want %d\nstdout: %s\nwants: %s\nstderr: %s\nwants: %s", args, exit, code, out, stdout, errs, stderr)
	}
	if strings.Contains(out+errs, "hunter2") {
		t.Error("a password was printed")
	}
	return errs
}

var service = []string{"SIDECAR_SERVICE=wms-cincout"}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	two := slices.Concat(service, []string{"SIDECAR_SUBSCRIPTIONS=orders,refunds", "SIDECAR_SUB_ORDERS_CONCURRENCY=2"})
	routed := slices.Concat(service, []string{"SIDECAR_ROUTES=order.#=/orders/{routing_key}, type:refund.*=/refunds", "SIDECAR_ROUTES_ELSE=park",
		"SIDECAR_APP_URL=unix:///run/app.sock:/in?key=hunter2", "SIDECAR_RESPONSE_DIALECT=dapr"})
	order := []string{"explain", "--routing-key", "order.created", "--body"}
	for _, c := range []struct {
		name    string
		environ []string
		args    []string
		code    int
		stdout  string // must contain
		stderr  string // must contain
	}{
		{"help of an unknown command", nil, []string{"help", "rnu"}, 64, "", `no command "rnu"; did you mean run? (sidecar --help)`},
		{"a command longer than any", nil, []string{strings.Repeat("z", 200)}, 64, "", `zzz"; there are run, check`},
		{"completion of no shell", nil, []string{"completion"}, 64, "", "want the name of a shell; there are bash, zsh, fish"},
		{"completion with a flag", nil, []string{"completion", "--bash"}, 64, "", "no flag --bash"},
		{"a word that is not true or false", nil, []string{"plan", "--json=maybe"}, 64, "", `invalid value "maybe" for flag --json: invalid syntax (`},
		{"man with an argument", nil, []string{"man", "dlq"}, 64, "", `unexpected argument "dlq"`},
		{"unknown command", nil, []string{"rnu"}, 64, "", `no command "rnu"; did you mean run? (sidecar --help)`},
		{"version", nil, []string{"version"}, 0, "sidecar dev", ""},
		{"version as JSON", nil, []string{"--version", "--json"}, 0, `{"commit":"unknown","go":"go`, ""},
		{"version with an argument", nil, []string{"version", "x"}, 64, "", `unexpected argument "x"`},
		{"run without a service", nil, nil, 64, "", "SIDECAR_SERVICE"},
		{"run with a flag", service, []string{"run", "--x"}, 64, "", "no flag --x (sidecar run --help)"},
		{"config", append(service, "SIDECAR_AMQP_PASSWORD=hunter2"), []string{"config"}, 0, "wms.queue.wms-cincout", ""},
		{"config as JSON", append(service, "SIDECAR_AMQP_PASSWORD=hunter2"), []string{"config", "--json"}, 0, `{"service":"wms-cincout","variables":[{"name":"SIDECAR_SERVICE","value":"wms-cincout","origin":"environment"},`, ""},
		{"config, what is changed", append(service, "SIDECAR_CONCURRENCY=3", "SIDECAR_LOG_LEVEL=info"), []string{"config", "--changed", "--json"}, 0, `{"name":"SIDECAR_CONCURRENCY","value":"3","origin":"environment"}],`, ""},
		{"config as JSON has the warnings", []string{"SIDECAR_SERVICE=lonely"}, []string{"config", "--json"}, 0, `],"warnings":["`, ""},
		{"config as JSON without warnings", append(service, "SIDECAR_QUEUE_TYPE=quorum"), []string{"config", "--json"}, 0, `],"warnings":[]}`, ""},
		{"plan", service, []string{"plan"}, 0, "wms.retry-queue.wms-cincout", ""},
		{"plan as JSON", service, []string{"plan", "--json"}, 0, `"name": "wms.dlq.wms-cincout"`, ""},
		{"plan not as JSON", service, []string{"plan", "--json=false"}, 0, "WHAT HAPPENS", ""},
		{"plan in another format", service, []string{"plan", "--format", "yaml"}, 64, "", `"yaml" for flag --format: there are text, mermaid, definitions`},
		{"plan in a format in capitals", service, []string{"plan", "--format", "Text"}, 0, "wms.queue.wms-cincout", ""},
		{"explain needs no service", nil, []string{"explain", "--status", "503", "--retry", "10"}, 0, "park (reason max_retries)", ""},
		{"explain retry", service, []string{"explain", "--status", "503"}, 0, "waits 5s in wms.retry-queue.wms-cincout", ""},
		{"explain as JSON", service, []string{"explain", "--status", "503", "--json"}, 0, `{"status":503,"retry":0,"max_retries":10,"action":"retry","reason":"server_error","steps":["a failed attempt`, ""},
		{"explain pause", service, []string{"explain", "--status", "429", "--retry-after", "30s"}, 0, "takes nothing for 30s", ""},
		{"explain refused", service, []string{"explain", "--failure", "refused"}, 0, "release (reason app_down)", ""},
		{"explain nothing", service, []string{"explain"}, 64, "", "--status or --failure"},
		{"explain both", service, []string{"explain", "--status", "1", "--failure", "reset"}, 64, "", "--status or --failure"},
		{"explain a status that is none", service, []string{"explain", "--status", "1000"}, 64, "", "1000"},
		{"explain no duration", service, []string{"explain", "--status", "429", "--retry-after", "-1s"}, 64, "", "want a duration"},
		{"explain a negative retry", service, []string{"explain", "--status", "500", "--retry", "-1"}, 64, "", "-1"},
		{"explain an unknown disposition", service, []string{"explain", "--status", "200", "--disposition", "prak"}, 64, "", `"prak" for flag --disposition: did you mean park?`},
		{"explain with a bad variable", []string{"SIDECAR_PREFETCH=0"}, []string{"explain", "--status", "200"}, 64, "", "SIDECAR_PREFETCH"},
		{"config of subscriptions", two, []string{"config"}, 0, "SIDECAR_CONCURRENCY     2                                      SIDECAR_SUB_ORDERS_CONCURRENCY\n", "warning: refunds: wms.queue.wms-cincout.refunds is a classic queue"},
		{"config of subscriptions has what is common", two, []string{"config"}, 0, "SIDECAR_EXCHANGE                       wms.main-exchange               preset\n", ""},
		{"config of subscriptions as JSON", two, []string{"config", "--json"}, 0, `{"name":"SIDECAR_CONCURRENCY","value":"2","origin":"environment","variable":"SIDECAR_SUB_ORDERS_CONCURRENCY"}`, ""},
		{"config of subscriptions as JSON, by name", two, []string{"config", "--json"}, 0, `],"subscriptions":[{"name":"orders","variables":[{"name":"SIDECAR_APP_URL"`, ""},
		{"config of subscriptions with a mistake", slices.Concat(two, []string{"SIDECAR_SUB_ORDRES_QUEUE=q"}), []string{"config"}, 64, "", "SIDECAR_SUB_ORDRES_QUEUE"},
		{"plan of one subscription", two, []string{"plan", "--subscription", "refunds"}, 0, "subscription refunds: topology fanout", ""},
		{"plan of one subscription as JSON", two, []string{"plan", "--json", "--subscription", "refunds"}, 0, `"queue": "wms.queue.wms-cincout.refunds"`, ""},
		{"plan of subscriptions as JSON", two, []string{"plan", "--json"}, 64, "", "choose it with --subscription"},
		{"plan of subscriptions, drawn", two, []string{"plan", "--format", "mermaid"}, 0, "q2 -->|consume| sidecar\n    q5 -->|consume| sidecar\n", ""},
		{"plan of subscriptions, permissions", two, []string{"plan", "--format", "permissions"}, 0, `read       ^(wms\.dlq\.wms-cincout\.orders|wms\.dlq\.wms-cincout\.refunds|wms\.main-exchange|wms\.queue`, ""},
		{"plan of a subscription that there is not", two, []string{"plan", "--subscription", "refund"}, 64, "", `no subscription "refund"; did you mean refunds?`},
		{"plan of subscriptions that only send", slices.Concat(two, []string{"SIDECAR_CONSUME=off", "SIDECAR_PUBLISH_ADDR=127.0.0.1:0"}), []string{"plan"}, 0, "  exchange wms.main-exchange\n", ""},
		{"explain without a subscription", two, []string{"explain", "--status", "500"}, 64, "", "choose a subscription, one of orders, refunds, with --subscription"},
		{"explain for a subscription", two, []string{"explain", "--status", "500", "--subscription", "refunds"}, 0, "then returns to wms.queue.wms-cincout.refunds", ""},
		{"explain a body", routed, append(order, `{"status":"DROP"}`), 0, "/orders/order.created, by the route order.#=/orders/{routing_key}\n  detail: dapr: DROP\n", ""},
		{"explain a body that is too large", routed, append(order, strings.Repeat(" ", 70000)), 0, "malformed answer: too large for SIDECAR_RESPONSE_DIALECT=dapr: over 64 KiB", ""},
		{"explain a body without a dialect", service, []string{"explain", "--status", "200", "--body", "{}"}, 64, "", "SIDECAR_RESPONSE_DIALECT"},
		{"explain a type", routed, []string{"explain", "--routing-key", "x", "--type", "refund.v2"}, 0, "POST to unix:///run/app.sock:/refunds, by the route type:refund.*=/refunds", ""},
		{"explain an exchange", append(service, "SIDECAR_ROUTES=exchange:Shop.#=/shop,header:task:a.#=/tasks"), []string{"explain", "--exchange", "Shop.Events:X"}, 0, "/shop, by the route exchange:Shop.#=/shop", ""},
		{"explain a header", append(service, "SIDECAR_ROUTES=exchange:Shop.#=/shop,header:task:a.#=/tasks"), []string{"explain", "--header", "x=1", "--header", "task=a.b"}, 0, "/tasks, by the route header:task:a.#=/tasks", ""},
		{"explain no header", service, []string{"explain", "--header", "x"}, 64, "", "want NAME=VALUE"},
		{"config with a route that nothing brings", append(service, "SIDECAR_TOPOLOGY=topic-tiers", "SIDECAR_BINDINGS=a:orders.*", "SIDECAR_ROUTES=order.*=/a"), []string{"config"}, 0, "", "no known binding of the queue"},
		{"explain no route", routed, []string{"explain", "--routing-key", "x"}, 0, "park (reason no_route)\n  not POSTed", ""},
		{"check without a broker", append(service, "SIDECAR_AMQP_URL=amqp://user:hunter2@127.0.0.1:1/"), []string{"check"}, 1, "", "connect to the broker"},
		{"health without a sidecar", append(service, "SIDECAR_ADMIN_ADDR=127.0.0.1:1"), []string{"health"}, 1, "", "SIDECAR_ADMIN_ADDR"},
		{"health at a random port", append(service, "SIDECAR_ADMIN_ADDR=:0"), []string{"health"}, 1, "", "port 0"},
		{"health with two arguments", service, []string{"health", "live", "ready"}, 64, "", `"ready"`},
		{"drain without a sidecar", append(service, "SIDECAR_CONTROL_ADDR=127.0.0.1:1"), []string{"drain"}, 1, "", "SIDECAR_CONTROL_ADDR"},
		{"drain at a random port", append(service, "SIDECAR_CONTROL_ADDR=127.0.0.1:0"), []string{"drain"}, 1, "", "port 0"},
	} {
		t.Run(c.name, func(t *testing.T) { wantCall(t, c.environ, c.args, c.code, c.stdout, c.stderr) })
	}
}

// at starts a server that imitates a running sidecar and returns its address.
func at(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// TestHealth: each word asks its path, at this machine where the address is that of all. A status other than 200 fails.
func TestHealth(t *testing.T) {
	t.Parallel()
	var asked *http.Request
	status := http.StatusOK
	addr := at(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"ready":true}`))
	})
	for args, path := range map[string]string{"health live": "/livez", "health ready": "/readyz", "health startup": "/startupz", "health": "/readyz"} {
		wantCall(t, append(service, "SIDECAR_ADMIN_ADDR="+addr), strings.Fields(args), 0, "ready", "")
		if asked.URL.Path != path {
			t.Errorf("%s asked %s, want %s", args, asked.URL.Path, path)
		}
	}
	_, port, _ := net.SplitHostPort(addr)
	for _, host := range []string{"", "0.0.0.0"} {
		wantCall(t, append(service, "SIDECAR_ADMIN_ADDR="+host+":"+port), []string{"health"}, 0, "", "")
		if asked.Host != "localhost" { // the control listener refuses a request without a host
			t.Errorf("asked for %q", asked.Host)
		}
	}
	status = http.StatusServiceUnavailable
	wantCall(t, append(service, "SIDECAR_ADMIN_ADDR="+addr), []string{"health"}, 1, "", "503")
}

// accepted takes a drain and answers each read with status.
func accepted(status func(http.ResponseWriter)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		status(w)
	}
}

// TestDrainWaits, also over reads without an answer: a preStop hook that fails would end the container while messages are
// in flight.
func TestDrainWaits(t *testing.T) {
	t.Parallel()
	states, reads := []string{"consuming", "draining", "", "", "drained"}, 0
	answers := accepted(func(w http.ResponseWriter) {
		state := states[min(reads, 4)]
		if reads++; state == "" {
			panic(http.ErrAbortHandler) // the connection breaks
		}
		_, _ = w.Write([]byte(`{"state":"` + state + `"}`))
	})
	addr := at(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer 0123456789abcdef" {
			t.Errorf("Authorization %q", r.Header.Get("Authorization"))
		}
		answers(w, r)
	})
	wantCall(t, append(service, "SIDECAR_CONTROL_ADDR="+addr, "SIDECAR_CONTROL_TOKEN=0123456789abcdef"), []string{"drain"}, 0, "drained", "")
	if reads != len(states) {
		t.Errorf("%d reads, want %d", reads, len(states))
	}
}

func TestDrainFails(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]http.HandlerFunc{
		"refused with status 401":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"status refused with status 500": accepted(func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }),
		"read the sidecar's status":      accepted(func(w http.ResponseWriter) { _, _ = w.Write([]byte("not json")) }),
	} {
		addr := at(t, h)
		wantCall(t, append(service, "SIDECAR_CONTROL_ADDR="+addr), []string{"drain"}, 1, "", name)
	}
}

// TestDrainOfASidecarThatEnds: the process may be gone before drain checks again.
func TestDrainOfASidecarThatEnds(t *testing.T) {
	t.Parallel()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	go func() {
		c, err := l.Accept()
		_ = l.Close() // before the answer: the next connection is refused
		if err != nil {
			return
		}
		_, _ = c.Read(make([]byte, 4096))
		_, _ = c.Write([]byte("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
		_ = c.Close()
	}()
	wantCall(t, append(service, "SIDECAR_CONTROL_ADDR="+l.Addr().String()), []string{"drain"}, 0, "stopped", "")
}
