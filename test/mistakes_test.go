package test

import (
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// mistake is one of a first hour: what was written, and what the program must say of it: what is wrong, and what to do.
type mistake struct {
	set  string // NAME=value, without SIDECAR_, separated by blanks; + is a blank
	args string
	code int
	says []string
}

// mistakesAlone need neither a broker nor a database. config TestBadValues has more values of single variables.
var mistakesAlone = []mistake{
	{"SERVICE=", "config", 64, []string{"SIDECAR_SERVICE: required and not set"}},
	{"RETRY_DELAY=5", "config", 64, []string{`SIDECAR_RETRY_DELAY="5"`, "such as 500ms, 30s"}},
	{"APP_PORT=3000", "config", 64, []string{"SIDECAR_APP_PORT: unknown name", "SIDECAR_APP_URL=http://"}},
	{"RABBITMQ_URL=amqp://h", "config", 64, []string{"SIDECAR_RABBITMQ_URL", "set SIDECAR_AMQP_URL="}},
	{"DATABASE_URL=postgres://h", "config", 64, []string{"SIDECAR_DATABASE_URL", "set SIDECAR_OUTBOX_DSN"}},
	{"PORT=8080", "config", 64, []string{"SIDECAR_PORT", "SIDECAR_APP_URL", "SIDECAR_ADMIN_ADDR"}},
	{"APP_TOKEN=Bearer+abc", "config", 64, []string{"SIDECAR_APP_TOKEN", "the token alone, without 'Bearer '"}},
	{"CONTROL_ADDR=0.0.0.0:9091", "config", 64, []string{"SIDECAR_CONTROL_ADDR", "needs SIDECAR_CONTROL_TOKEN"}},
	{"ADMIN_ADDR=9090", "config", 64, []string{"SIDECAR_ADMIN_ADDR", "written as :9090"}},
	{"TOPOLOGY=topic-tiers ORDER_BY=queue", "config", 64, []string{"SIDECAR_ORDER_BY", "SIDECAR_RETRY_DELAYS"}},
	{"SUB_ORDERS_QUEUE=q", "config", 64, []string{"SIDECAR_SUB_ORDERS_QUEUE", "set SIDECAR_SUBSCRIPTIONS"}},
	{"CONSUME=off", "run", 64, []string{"SIDECAR_CONSUME", "set SIDECAR_PUBLISH_ADDR or SIDECAR_OUTBOX_DSN"}},
	{"", "redrive", 64, []string{`no command "redrive"`, "did you mean dlq redrive?"}},
	{"", "dlq redirve", 64, []string{"did you mean redrive?"}},
	{"", "dlq list --jsn", 64, []string{"no flag --jsn", "--json"}},
	{"", "dlq redrive", 64, []string{"say which messages", "--all"}},
	{"", "dlq discard --all", 64, []string{"deletes messages permanently", "--yes", "--dry-run"}},
	{"", "explain --status abc", 64, []string{`"abc"`, "a whole number"}},
	{"ADMIN_ADDR=127.0.0.1:1", "health", 1, []string{"127.0.0.1:1", "refused", "start it, or set SIDECAR_ADMIN_ADDR"}},
	{"", "check", 1, []string{"127.0.0.1:1", "refused", "check host and port in SIDECAR_AMQP_URL"}},
	{"AMQP_URL=amqp://host.invalid/", "dlq list", 1, []string{"host.invalid", "check the host in SIDECAR_AMQP_URL"}},
}

// TestMistakes: the mistakes of a first hour. Each answer names what is wrong, and what to do about it.
func TestMistakes(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	user := newAccount(t)
	user.may("^$", "^$", ".*")
	queues := map[string]amqp.Table{"stream": {"x-queue-type": "stream"}}
	for name, args := range queues {
		must.Get(brokertest.Channel(t, sc.url).QueueDeclare(sc.prefix+name, true, false, false, false, args))(t)
	}
	must.Do(t, brokertest.Channel(t, sc.url).ExchangeDeclare(sc.prefix, "topic", true, false, false, false, nil))
	url := brokertest.URL(t)
	address := url[strings.LastIndexByte(url, '@')+1:]
	port, _, _ := strings.Cut(address, "/")
	login := url[:strings.LastIndexByte(url, '@')+1]
	secret := filepath.Join(t.TempDir(), "secret")
	must.Do(t, os.WriteFile(secret, []byte("s"), 0o600))
	must.Do(t, os.Mkdir(secret+".d", 0o700))
	withBroker := []mistake{
		{"AMQP_URL=" + login + port + "/nope", "check", 1, []string{`the virtual host "nope" does not exist`, "the path of SIDECAR_AMQP_URL"}},
		{"AMQP_URL=" + login + port + "/nope", "dlq list", 1, []string{`the virtual host "nope" does not exist`}},
		{"AMQP_PASSWORD=wrong", "check", 1, []string{"check user ", "SIDECAR_AMQP_PASSWORD"}},
		{"AMQP_PASSWORD_FILE=" + secret + ".d", "check", 64, []string{"SIDECAR_AMQP_PASSWORD_FILE", "regular file"}},
		{"AMQP_URL=amqps" + strings.TrimPrefix(url, "amqp"), "check", 1, []string{"this port has no TLS: amqp://"}},
		{"MANAGEMENT_URL=http://u:p@" + port, "check", 1, []string{"check SIDECAR_MANAGEMENT_URL", "15672"}},
		{"SERVICE=other-svc", "dlq list", 1, []string{"other.dlq.other-svc", "check SIDECAR_SERVICE"}},
		{"", "check", 2, []string{"virtual host ", "missing", "`sidecar run` with SIDECAR_TOPOLOGY_MODE=declare"}},
		{"TOPOLOGY_MODE=verify", "check", 1, []string{"missing", "sidecar plan --format definitions"}},
		{"BINDINGS=gone:a.b", "check", 1, []string{`exchange "gone"`, "its owner has to declare it"}},
		{"EXCHANGE=" + sc.prefix, "check", 1, []string{"type fanout", "set SIDECAR_EXCHANGE_TYPE to topic"}},
		{"QUEUE=" + sc.prefix + "stream", "check", 1, []string{"stream", "a queue beside it: another SIDECAR_QUEUE"}},
		{"AMQP_USERNAME=" + user.name + " AMQP_PASSWORD=canary-password", "check", 1, []string{"permission", "rabbitmqctl set_permissions"}},
	}
	for _, rows := range []struct {
		env  map[string]string
		rows []mistake
	}{{valid(), mistakesAlone}, {sc.env, withBroker}} {
		for _, m := range rows.rows {
			t.Run(m.args+" "+m.set, func(t *testing.T) {
				t.Parallel()
				env := maps.Clone(rows.env)
				for pair := range strings.FieldsSeq(m.set) {
					name, value, _ := strings.Cut(pair, "=")
					env["SIDECAR_"+name] = strings.ReplaceAll(value, "+", " ")
				}
				wantSaid(t, command(t, env, strings.Fields(m.args)...), m.code, m.says...)
			})
		}
	}
}

func wantSaid(t *testing.T, r result, code int, says ...string) {
	t.Helper()
	for _, text := range says {
		if r.code != code || !strings.Contains(r.all(), text) {
			t.Errorf("exit %d, want %d and %q in\n%s", r.code, code, text, r.all())
		}
	}
}

// TestMistakesOfClients: a request to the wrong place or in the wrong form is answered with the right one.
func TestMistakesOfClients(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("EXCHANGE_TYPE", "topic", "PUBLISH_ADDR", "127.0.0.1:0")
	sc.with("BINDINGS", sc.exchange()+":orders.*,"+sc.exchange()+":payments.*")
	s := sc.run()
	for _, c := range []struct {
		method, to, path, body, says string
	}{
		{"POST", s.endpoint, "/publish/default/nothing", "{}", "bound by orders.*, payments.*"},
		{"POST", s.endpoint, "/publish/shop/orders.x", "{}", "The aliases are default"},
		{"POST", s.endpoint, "/publish/orders.x", "{}", "/publish/{exchange}/{routing key}"},
		{"GET", s.endpoint, "/publish/default/orders.x", "", "The method must be POST"},
		{"POST", s.endpoint, "/publish:batch", `{"key":"orders.x"}`, "application/jsonl"},
		{"POST", s.admin, "/publish/default/orders.x", "{}", "published at SIDECAR_PUBLISH_ADDR"},
		{"POST", s.admin, "/pause", "", "control and dead letters at SIDECAR_CONTROL_ADDR"},
		{"GET", s.control, "/metrics", "", "metrics are at SIDECAR_ADMIN_ADDR"},
		{"POST", s.control, "/dlq/redrive", `{"reason":"x"}`, "there are filter all limit dry_run"},
		{"POST", s.control, "/dlq/redrive", `{"filter":{"reson":"x"}}`, "is not a condition; there are "},
	} {
		req := must.Get(http.NewRequestWithContext(t.Context(), c.method, "http://"+c.to+c.path, strings.NewReader(c.body)))(t)
		req.Header.Set("Content-Type", "application/json")
		res := must.Get(plain.Do(req))(t)
		body := string(must.Get(io.ReadAll(res.Body))(t))
		_ = res.Body.Close()
		if !strings.Contains(body, c.says) {
			t.Errorf("%s %s: want %q in %s", c.method, c.path, c.says, body)
		}
	}
}

// TestWrongBrokerIsOneLine: three connections fail again and again, and the log has one line, which says what to do. So
// has an app that is not there, after two seconds.
func TestWrongBrokerIsOneLine(t *testing.T) {
	t.Parallel()
	env := valid()
	env["SIDECAR_PUBLISH_ADDR"], env["SIDECAR_APP_URL"] = "127.0.0.1:0", "http://127.0.0.1:1/"
	s := start(t, env)
	eventually(t, "several attempts", func() bool { return s.metric("sidecar_amqp_reconnects_total", `cause="network"`) >= 6 })
	lines := s.log.find(func(e entry) bool { return strings.HasPrefix(e.text("msg"), "broker ") })
	eventually(t, "the app is not there", func() bool {
		return len(s.log.find(func(e entry) bool { return e.is("paused") && strings.Contains(e.text("fix"), "SIDECAR_APP_URL") })) == 1
	})
	if len(lines) != 1 || !strings.Contains(lines[0].text("fix"), "SIDECAR_AMQP_URL") {
		t.Errorf("%v", lines)
	}
	s.stop()
}
