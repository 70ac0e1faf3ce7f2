package app

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/config"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

const two = "SIDECAR_SERVICE=wms-cincout SIDECAR_SUBSCRIPTIONS=orders,refunds "

// subscriptionMistakes are environments, and every line that Load reports.
var subscriptionMistakes = []struct{ name, environ, want string }{
	{"names and values", `SIDECAR_SERVICE=wms-cincout SIDECAR_SUBSCRIPTIONS=orders,a,a-retry,refunds SIDECAR_PREFETCH=20 SIDECAR_APP_TIMEOUT=1 SIDECAR_SUB_A_CONCURRENCY=50
SIDECAR_SUB_A_RETRY_QUEUE=q SIDECAR_SUB_ORDERS_APP_URL=ftp://{subscription}.local/ SIDECAR_SUB_ORDERS_MEMORY=1GiB
SIDECAR_SUB_ORDERS_QEUE=q SIDECAR_SUB_ORDERS=q SIDECAR_SUB_ORDRES_APP_TOKEN_FILE=q
SIDECAR_SUB_REFUNDS_RETRY_AFTER_MAX=24m SIDECAR_SUB_REFUNDS_APP_TIMEOUT=3m SIDECAR_SUB_REFUNDS_RETRY_DELAY=1s
SIDECAR_SUB_REFUNDS_RETRY_DELAYS=1s,2s SIDECAR_SUB_REFUNDS_ROUTES_ELSE=ack SIDECAR_SUB_REFUNDS_MESSAGE_TTL=1m
SIDECAR_SUB_REFUNDS_QUEUE=amq.q SIDECAR_SUB_A_TOPOLOGY=per-queue SIDECAR_SUB_A_QUEUE_ARGUMENTS=x-queue-type=quorum
SIDECAR_SUBSCRIPTION=x SIDECAR_SUB=x`, `
SIDECAR_APP_TIMEOUT="1": not a duration: a number with a unit, such as 500ms, 30s, 5m or 1h30m; allowed: a duration from 1ms to 24h
SIDECAR_SUB_ORDERS_APP_URL="ftp://{subscription}.local/": must start with http://, https:// or unix://; allowed: 'http://…', 'https://…' or 'unix:///path/to.sock:/http/path', without user, fragment, '..' and '//'
SIDECAR_SUB_A_CONCURRENCY="50": does not fit SIDECAR_PREFETCH="20": must be at least SIDECAR_SUB_A_CONCURRENCY, which is 50; allowed: 1 to 10000
SIDECAR_SUB_A_QUEUE_ARGUMENTS="x-queue-type=quorum": x-queue-type is set by the topology; allowed: 'name=value' of arguments of classic or quorum queues, separated by commas
SIDECAR_SUB_A_BINDINGS: required for SIDECAR_SUB_A_TOPOLOGY=per-queue and not set; allowed: 'exchange:key', separated by commas; the key may be empty
SIDECAR_SUB_A_RETRY_QUEUE: can mean RETRY_QUEUE of subscription a or QUEUE of subscription a-retry: give one of them another name in SIDECAR_SUBSCRIPTIONS
SIDECAR_SUB_REFUNDS_ROUTES_ELSE="ack": not used: there are no routes, because SIDECAR_ROUTES is not set; allowed: app, ack, park
SIDECAR_SUB_REFUNDS_RETRY_DELAY="1s": cannot be combined with SIDECAR_SUB_REFUNDS_RETRY_DELAYS; allowed: a duration from 1ms to 1193h2m47.295s, whole milliseconds
SIDECAR_SUB_REFUNDS_RETRY_AFTER_MAX="24m": together with SIDECAR_SUB_REFUNDS_APP_TIMEOUT, which is 3m0s, it must not be more than 25m: after 30 minutes the broker takes an unsettled message away. A quorum queue of RabbitMQ 4.3 allows more: SIDECAR_TOPOLOGY=native or SIDECAR_QUEUE_TYPE=quorum, without SIDECAR_ORDER_BY; allowed: a duration from 1s to 24m
SIDECAR_SUB_REFUNDS_QUEUE="amq.q": names that start with amq. are reserved by the broker; allowed: at most 255 bytes, no control characters, not starting with 'amq.'
SIDECAR_SUB_REFUNDS_MESSAGE_TTL="1m": is for SIDECAR_TOPOLOGY=dead-letter only, and the topology is fanout; allowed: a duration from 1ms to 1193h2m47.295s, whole milliseconds
SIDECAR_SUB: unknown name; docs/configuration.md lists the known names
SIDECAR_SUBSCRIPTION: unknown name; the nearest known name is SIDECAR_SUBSCRIPTIONS
SIDECAR_SUB_ORDERS: not a variable of orders, a, a-retry, refunds; the nearest known name is SIDECAR_SUB_ORDERS_DLX
SIDECAR_SUB_ORDERS_MEMORY: cannot be set for one subscription: SIDECAR_MEMORY holds for the whole sidecar
SIDECAR_SUB_ORDERS_QEUE: not a variable of orders, a, a-retry, refunds; the nearest known name is SIDECAR_SUB_ORDERS_QUEUE
SIDECAR_SUB_ORDRES_APP_TOKEN_FILE: not a variable of orders, a, a-retry, refunds; the nearest known name is SIDECAR_SUB_ORDERS_APP_TOKEN_FILE`},
	{"one queue, and what it parks and retries, for two", two + `SIDECAR_QUEUE=q SIDECAR_SUB_REFUNDS_QUEUE_TYPE=quorum`, `
SIDECAR_QUEUE="q": subscription orders consumes queue "q" too: give SIDECAR_SUB_REFUNDS_QUEUE or SIDECAR_SUB_ORDERS_QUEUE another value; allowed: at most 255 bytes, no control characters, not starting with 'amq.'`},
	{"retries of two in one queue", two + `SIDECAR_SUB_ORDERS_RETRY_QUEUE=waiting SIDECAR_SUB_REFUNDS_RETRY_QUEUE=waiting
SIDECAR_SUB_REFUNDS_DLQ=wms.queue.wms-cincout.orders`, `
SIDECAR_SUB_REFUNDS_RETRY_QUEUE="waiting": queue "waiting" is declared here as retry x-dead-letter-exchange="" x-dead-letter-routing-key=wms.queue.wms-cincout.refunds x-message-ttl=5000, and for subscription orders as retry x-dead-letter-exchange="" x-dead-letter-routing-key=wms.queue.wms-cincout.orders x-message-ttl=5000: give SIDECAR_SUB_REFUNDS_RETRY_QUEUE or SIDECAR_SUB_ORDERS_RETRY_QUEUE another value; allowed: at most 255 bytes, no control characters, not starting with 'amq.'
SIDECAR_SUB_REFUNDS_DLQ="wms.queue.wms-cincout.orders": queue "wms.queue.wms-cincout.orders" is declared here as dlq, and for subscription orders as main x-dead-letter-exchange=wms.retry-exchange.wms-cincout.orders x-dead-letter-routing-key=retry: give SIDECAR_SUB_REFUNDS_DLQ or SIDECAR_SUB_ORDERS_QUEUE another value; allowed: at most 255 bytes, no control characters, not starting with 'amq.'`},
	{"shared exchanges", two + `SIDECAR_TOPOLOGY=per-queue SIDECAR_BINDINGS=domain.events:{subscription}.# SIDECAR_RETRY_EXCHANGE=retry
SIDECAR_DLX=dlx`, `
SIDECAR_RETRY_EXCHANGE="retry": exchange "retry", which subscription orders uses too, routes the key retry to "q.refunds.retry" and to "q.orders.retry": give SIDECAR_SUB_REFUNDS_RETRY_EXCHANGE or SIDECAR_SUB_ORDERS_RETRY_EXCHANGE another value; allowed: at most 255 bytes, no control characters, not starting with 'amq.'
SIDECAR_DLX="dlx": exchange "dlx", which subscription orders uses too, routes the key parking to "q.refunds.dlq" and to "q.orders.dlq": give SIDECAR_SUB_REFUNDS_DLX or SIDECAR_SUB_ORDERS_DLX another value; allowed: at most 255 bytes, no control characters, not starting with 'amq.'`},
	{"one exchange of two types", two + `SIDECAR_SUB_REFUNDS_EXCHANGE_TYPE=topic`, `
SIDECAR_SUB_REFUNDS_EXCHANGE_TYPE="topic": exchange "wms.main-exchange" is declared here as topic, and for subscription orders as fanout: give SIDECAR_SUB_REFUNDS_EXCHANGE_TYPE or SIDECAR_SUB_ORDERS_EXCHANGE_TYPE another value; allowed: direct, fanout, topic, headers`},
	{"one dead-letter queue with other arguments", two + `SIDECAR_TOPOLOGY=topic-tiers SIDECAR_SUB_REFUNDS_QUEUE_TYPE=quorum`, `
SIDECAR_SUB_REFUNDS_DLQ: queue "wms.events.dlq" is declared here as dlq x-delivery-limit=2147483647 x-queue-type=quorum, and for subscription orders as dlq: give SIDECAR_SUB_REFUNDS_DLQ or SIDECAR_SUB_ORDERS_DLQ another value; allowed: at most 255 bytes, no control characters, not starting with 'amq.'`},
	{"two main exchanges", two + `SIDECAR_EXCHANGE=wms.{subscription} SIDECAR_PUBLISH_ADDR=127.0.0.1:9092 SIDECAR_OUTBOX_DSN=postgres:///x`, `
SIDECAR_EXCHANGE="wms.{subscription}": publishing needs one main exchange, and that of subscription orders is wms.orders: set default=EXCHANGE in SIDECAR_PUBLISH_EXCHANGES; allowed: at most 255 bytes, no control characters; not starting with 'amq.', except 'amq.direct', 'amq.fanout', 'amq.topic', 'amq.headers' and 'amq.match' where the preset names nothing after it`},
	{"inherited values", two + `SIDECAR_QUEUE=amq.{subscription} SIDECAR_TOPOLOGY=dead-letter SIDECAR_PREFETCH=5`, `
SIDECAR_PREFETCH="5": must be at least SIDECAR_CONCURRENCY, which is 10; allowed: 1 to 65535, or auto
SIDECAR_QUEUE="amq.{subscription}": names that start with amq. are reserved by the broker; allowed: at most 255 bytes, no control characters, not starting with 'amq.'
SIDECAR_SUB_ORDERS_BINDINGS: required for SIDECAR_TOPOLOGY=dead-letter and not set; allowed: 'exchange:key', separated by commas; the key may be empty
SIDECAR_SUB_REFUNDS_BINDINGS: required for SIDECAR_TOPOLOGY=dead-letter and not set; allowed: 'exchange:key', separated by commas; the key may be empty`},
	{"a plan file beside a common name", two + `SIDECAR_EXCHANGE=x SIDECAR_SUB_REFUNDS_PLAN_FILE=/does/not/exist.json`, `
SIDECAR_SUB_REFUNDS_PLAN_FILE="/does/not/exist.json": no such file or directory; allowed: a plan in JSON of at most 1 MiB, as sidecar plan --format json prints it
SIDECAR_SUB_REFUNDS_PLAN_FILE="/does/not/exist.json": does not fit SIDECAR_EXCHANGE="x": cannot be combined with SIDECAR_SUB_REFUNDS_PLAN_FILE: the file says it in $.exchanges; allowed: a plan in JSON of at most 1 MiB, as sidecar plan --format json prints it`},
	{"names of subscriptions", `SIDECAR_SERVICE=wms-cincout SIDECAR_SUBSCRIPTIONS=orders,orders,Foo,-x, SIDECAR_SUB_ORDERS_CONCURRENCY=0 SIDECAR_SUB_REFUNDS_CONCURRENCY=0
SIDECAR_QUEUE=q.{subscription}`, `
SIDECAR_SUBSCRIPTIONS="orders,orders,Foo,-x,": not names of subscriptions, or there twice: "orders", "Foo", "-x", ""; allowed: 1 to 64 distinct names separated by commas, each of lower-case letters, digits and '-', starting with a letter
SIDECAR_SUB_ORDERS_CONCURRENCY="0": out of range; allowed: 1 to 10000`},
	{"65 names", `SIDECAR_SERVICE=wms-cincout SIDECAR_SUBSCRIPTIONS=s0,s1,s2,s3,s4,s5,s6,s7,s8,s9,s10,s11,s12,s13,s14,s15,s16,s17,s18,s19,s20,s21,s22,s23,s24,s25,s26,s27,s28,s29,s30,s31,s32,s33,s34,s35,s36,s37,s38,s39,s40,s41,s42,s43,s44,s45,s46,s47,s48,s49,s50,s51,s52,s53,s54,s55,s56,s57,s58,s59,s60,s61,s62,s63,s64`, `
SIDECAR_SUBSCRIPTIONS="s0,s1,s2,s3,s4,s5,s6,s7,s8,s9,s10,s11,s12,s13,s14,s15,s16,s17,s18,s19,s20,s21,s22,s23,s24,s25,s26,s2"…: has 65 names; allowed: 1 to 64 distinct names separated by commas, each of lower-case letters, digits and '-', starting with a letter`},
	{"a name that makes names too long", `SIDECAR_SERVICE=wms-cincout SIDECAR_SUBSCRIPTIONS=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa`, `
SIDECAR_SUBSCRIPTIONS="aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"…: exchange "wms.retry-exchange.wms-cincout.aaaaaaaaaaaaaaaaaaaaaaaaaaaaa"… has 281 bytes and may have 255; or set SIDECAR_SERVICE or SIDECAR_PREFIX or SIDECAR_RETRY_EXCHANGE; allowed: 1 to 64 distinct names separated by commas, each of lower-case letters, digits and '-', starting with a letter`},
	{"no subscriptions", `SIDECAR_SERVICE=wms-cincout SIDECAR_QUEUE=q.{subscription} SIDECAR_BINDINGS=x:{subscription}.#
SIDECAR_APP_URL=http://127.0.0.1:8080/{subscription} SIDECAR_SUB_ORDERS_QUEUE=q SIDECAR_SUB_ORDERS_QEUE=q`, `
SIDECAR_APP_URL="http://127.0.0.1:8080/{subscription}": {subscription} is the name of a subscription: set SIDECAR_SUBSCRIPTIONS; allowed: 'http://…', 'https://…' or 'unix:///path/to.sock:/http/path', without user, fragment, '..' and '//'
SIDECAR_QUEUE="q.{subscription}": {subscription} is the name of a subscription: set SIDECAR_SUBSCRIPTIONS; allowed: at most 255 bytes, no control characters, not starting with 'amq.'
SIDECAR_BINDINGS="x:{subscription}.#": {subscription} is the name of a subscription: set SIDECAR_SUBSCRIPTIONS; allowed: 'exchange:key', separated by commas; the key may be empty
SIDECAR_SUB_ORDERS_QEUE: there are no subscriptions: set SIDECAR_SUBSCRIPTIONS
SIDECAR_SUB_ORDERS_QUEUE: there are no subscriptions: set SIDECAR_SUBSCRIPTIONS`},
	{"no service", `SIDECAR_SUBSCRIPTIONS=orders,refunds`, `
SIDECAR_SERVICE: required and not set; allowed: letters, digits, '.', '_' and '-', not starting with '-' or 'amq.'`},
	{"links of a Kubernetes service", `SIDECAR_SERVICE=wms-cincout SIDECAR_SUBSCRIPTIONS=orders SIDECAR_SUB_ORDERS_SERVICE_HOST=10.0.0.1 SIDECAR_SUB_ORDERS_PORT=tcp://10.0.0.1:80
SIDECAR_SUB_ORDERS_PORT_80_TCP_ADDR=10.0.0.1 SIDECAR_SUB_ORDERS_SERVICE_HOSTNAME=x`, `
SIDECAR_SUB_ORDERS_SERVICE_HOSTNAME: not a variable of orders; docs/configuration.md lists the known names`},
	{"nothing is consumed, and nothing sent", two + `SIDECAR_CONSUME=off SIDECAR_SUB_REFUNDS_QUEUE=wms.queue.wms-cincout.orders`, `
SIDECAR_CONSUME="off": leaves nothing to do: set SIDECAR_PUBLISH_ADDR or SIDECAR_OUTBOX_DSN; allowed: on, off
SIDECAR_SUB_REFUNDS_QUEUE="wms.queue.wms-cincout.orders": subscription orders consumes queue "wms.queue.wms-cincout.orders" too: give SIDECAR_SUB_REFUNDS_QUEUE or SIDECAR_SUB_ORDERS_QUEUE another value; allowed: at most 255 bytes, no control characters, not starting with 'amq.'`},
}

// TestSubscriptionMistakes: every wrong combination of an environment is reported with its fix, once, all in one Load.
func TestSubscriptionMistakes(t *testing.T) {
	t.Parallel()
	for _, tc := range subscriptionMistakes {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if _, err := config.Load(strings.Fields(tc.environ), 0, Rule); err == nil || err.Error() != strings.TrimSpace(tc.want) {
				t.Errorf("got\n%v\nwant\n%s", err, tc.want)
			}
		})
	}
}

// planFile writes the plan of a configuration, after change, into a file and returns the variable that names it.
func planFile(t *testing.T, cfg *config.Config, change func(plan map[string]any)) string {
	t.Helper()
	plan := map[string]any{}
	must.Do(t, json.Unmarshal([]byte(must.Get(RenderPlan(cfg, "json"))(t)), &plan))
	if change != nil {
		change(plan)
	}
	path := filepath.Join(t.TempDir(), "plan.json")
	must.Do(t, os.WriteFile(path, must.Get(json.Marshal(plan))(t), 0o600))
	return "SIDECAR_PLAN_FILE=" + path
}

// TestPlanFromFile: with the printed plan as a file every command shows the same, in every mode. No warning asks for a
// variable that cannot be set.
func TestPlanFromFile(t *testing.T) {
	t.Parallel()
	for _, preset := range [][]string{
		{"SIDECAR_TOPOLOGY=fanout"}, {"SIDECAR_TOPOLOGY=topic-tiers", "SIDECAR_DLQ=d", "SIDECAR_QUEUE_TYPE=quorum"},
		{"SIDECAR_TOPOLOGY=dead-letter", "SIDECAR_QUEUE=q", "SIDECAR_BINDINGS=a:b", "SIDECAR_DEAD_LETTER=disabled"},
	} {
		for _, mode := range []string{"declare", "verify", "none"} {
			mode = "SIDECAR_TOPOLOGY_MODE=" + mode
			cfg := must.Get(judged(append(preset, mode)...))(t)
			fromFile := must.Get(judged(planFile(t, cfg, nil), mode))(t)
			for _, format := range PlanFormats {
				want, err := RenderPlan(cfg, format)
				if got, errFile := RenderPlan(fromFile, format); err != nil || errFile != nil || got != want {
					t.Errorf("%v %s %s: %v %v\n%s", preset, mode, format, err, errFile, got)
				}
			}
			question := Question{Status: 503, RetryAfter: -1}
			if got, want := must.Get(Explain(fromFile, question))(t), must.Get(Explain(cfg, question))(t); !reflect.DeepEqual(got, want) {
				t.Errorf("%v %v: %v", preset, mode, got)
			}
			planned, filed := must.Get(newPlan(cfg))(t), must.Get(newPlan(fromFile))(t)
			if got, want := mainExchange(fromFile, filed), mainExchange(cfg, planned); got != want && preset[0] != "SIDECAR_TOPOLOGY=dead-letter" {
				t.Errorf("%v: main exchange %q, want %q", preset, got, want)
			}
			values, warned, err := PresetValues(fromFile)
			if text := strings.ReplaceAll(strings.Join(warned, "\n"), "SIDECAR_TOPOLOGY_MODE", ""); err != nil || values != nil || text == "" ||
				strings.Contains(text, "SIDECAR_") {
				t.Errorf("%v %s: %v %v %q", preset, mode, err, values, warned)
			}
		}
	}
}

// TestBrokenPlanFile: all problems of the file are among those of the variables, a line each.
func TestBrokenPlanFile(t *testing.T) {
	t.Parallel()
	file := planFile(t, must.Get(judged())(t), func(p map[string]any) {
		p["max_retries"], p["queue"], p["tiers"] = 1.5, "other", true
	})
	_, err := judged(file, "SIDECAR_QUEUE=q", "SIDECAR_LOG_LEVEL=loud")
	if err == nil {
		t.Fatal("accepted")
	}
	_, path, _ := strings.Cut(file, "=")
	want := []string{
		`SIDECAR_PLAN_FILE="` + path + `": $.max_retries: 1.5 is not a whole number`,
		`SIDECAR_PLAN_FILE="` + path + `": $.tiers: unknown field`,
		`SIDECAR_PLAN_FILE="` + path + `": $.queue: the service's queue "other" is not in the plan`,
		`SIDECAR_QUEUE="q": cannot be combined with SIDECAR_PLAN_FILE: the file says it in $.queue; allowed: `,
		`SIDECAR_LOG_LEVEL="loud": not one of the words`,
	}
	if lines := strings.Split(err.Error(), "\n"); !slices.EqualFunc(lines, want, strings.HasPrefix) {
		t.Errorf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
}

// TestPlanFileWithoutBindings: what the app publishes without saying where goes to the default exchange.
func TestPlanFileWithoutBindings(t *testing.T) {
	t.Parallel()
	cfg := must.Get(judged("SIDECAR_TOPOLOGY=delay-ladder", "SIDECAR_BINDINGS=a:b"))(t)
	fromFile := must.Get(judged(planFile(t, cfg, func(p map[string]any) { p["bindings"], p["exchanges"] = []any{}, []any{} })))(t)
	p := must.Get(newPlan(fromFile))(t)
	if x := mainExchange(fromFile, p); x != "" || p.Preset != topology.PresetDelayLadder || p.Service != "wms-cincout" {
		t.Errorf("main exchange %q of %+v", x, p)
	}
}

// TestRunAPlanFromAFile: the objects of a file are declared, judged and used, by the commands and by the sidecar.
func TestRunAPlanFromAFile(t *testing.T) {
	t.Parallel()
	app := apptest.NewApp(t)
	app.On("bad", apptest.Say(apptest.Status(409)))
	const file = "SIDECAR_PLAN_FILE=../../examples/topologies/headers/billing.json"
	cfg := live(t, file, "SIDECAR_APP_URL="+app.URL, "SIDECAR_PARK_ON_STATUS=409")
	if out := problems(t, cfg); !strings.Contains(out, `queue "billing" `) {
		t.Errorf("a check before anything was declared:\n%s", out)
	}
	a, _, stop := run(t, cfg)
	brokertest.Eventually(t, time.Minute, "ready", func() bool { return a.Ready("").Ready })
	ch := brokertest.Channel(t, brokertest.URL(t))
	for id, headers := range map[string]amqp.Table{
		"good": {"kind": "invoice", "version": int64(2)}, "bad": {"refund": true},
	} {
		brokertest.Publish(t, ch, "documents", "", amqp.Publishing{MessageId: id, Headers: headers})
	}
	brokertest.Eventually(t, time.Minute, "one acked, one parked", func() bool {
		f := a.Flow()
		return f.Settled["ack"] == 1 && f.Settled["park"] == 1
	})
	if name := must.Get(DeadLetters(cfg, Build{}, "operator"))(t).Name(); name != "billing.dead" {
		t.Errorf("the dead-letter queue is %s", name)
	}
	must.Do(t, stop())
	for mode, want := range map[string]string{"declare": "ok       billing", "verify": "note     billing", "none": "note     billing"} {
		if out := printed(t, live(t, file, "SIDECAR_TOPOLOGY_MODE="+mode)); !strings.Contains(out, want) {
			t.Errorf("check in mode %s:\n%s", mode, out)
		}
	}
	var out strings.Builder
	if err := RoundTrip(t.Context(), cfg, Build{}, &out); err != nil || !strings.Contains(out.String(), "billing.roundtrip") {
		t.Errorf("%v\n%s", err, &out)
	}
}
