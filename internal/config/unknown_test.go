package config

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestUnknownNameSuggestsTheNearest(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"SIDECAR_AMQP_PASSWROD":       "SIDECAR_AMQP_PASSWORD",
		"SIDECAR_AMQP_PASWORD_FILE":   "SIDECAR_AMQP_PASSWORD_FILE",
		"SIDECAR_PREFETHC":            "SIDECAR_PREFETCH",
		"SIDECAR_RETRY_DELAYZ":        "SIDECAR_RETRY_DELAY",
		"SIDECAR_prefetch":            "SIDECAR_PREFETCH",
		"SIDECAR_TLS_CA_FILE":         "SIDECAR_AMQP_TLS_CA_FILE",
		"SIDECAR_RETRIES":             "SIDECAR_MAX_RETRIES",
		"SIDECAR_SERVICE_NAME":        "SIDECAR_SERVICE",
		"SIDECAR_SERVICE_FILE":        "SIDECAR_SERVICE",
		"SIDECAR_ADMIN_ADDRESS":       "SIDECAR_ADMIN_ADDR",
		"SIDECAR_ADMIN":               "SIDECAR_ADMIN_ADDR",
		"SIDECAR_USERNAME":            "SIDECAR_AMQP_USERNAME",
		"SIDECAR_DELAYS":              "SIDECAR_RETRY_DELAYS",
		"SIDECAR_FOO":                 "",
		"SIDECAR_SUPPORT_ME":          "",
		strings.Repeat("SIDECAR_", 9): "",
	} {
		line := refuse(t, name, name+"="+canary)
		if want = "unknown name; the nearest known name is " + want; strings.HasSuffix(want, " ") {
			want = "unknown name; docs/configuration.md lists the known names"
		}
		if !strings.HasSuffix(line, want) {
			t.Errorf("%s: %s", name, line)
		}
		// What was mistyped may be the name of a secret.
		if strings.Contains(line, canary) || !strings.Contains(line, "SIDECAR_") {
			t.Errorf("%s: %s", name, line)
		}
	}
}

func TestUnknownNameStaysOnOneLine(t *testing.T) {
	t.Parallel()
	_, err := Load([]string{"SIDECAR_SERVICE=a-b", "SIDECAR_X\nSIDECAR_Y=1", "SIDECAR_" + strings.Repeat("Z", 5000) + "=1"}, 0)
	if err == nil || strings.Count(err.Error(), "\n") != 1 || len(err.Error()) > 500 || strings.Contains(err.Error(), "nearest") {
		t.Errorf("got %v", err)
	}
}

// TestServiceLinks holds what Kubernetes puts into every container of a namespace with Services "sidecar" and
// "sidecar-web".
func TestServiceLinks(t *testing.T) {
	t.Parallel()
	c := load(
		t, "SIDECAR_SERVICE_HOST=10.0.0.1", "SIDECAR_SERVICE_PORT=80", "SIDECAR_SERVICE_PORT_HTTP=80", "SIDECAR_PORT=tcp://10.0.0.1:80",
		"SIDECAR_PORT_80_TCP=tcp://10.0.0.1:80", "SIDECAR_PORT_80_TCP_PROTO=tcp", "SIDECAR_PORT_80_TCP_PORT=80", "SIDECAR_PORT_80_TCP_ADDR=10.0.0.1",
		"SIDECAR_WEB_SERVICE_HOST=fd00::1", "SIDECAR_WEB_SERVICE_PORT=53", "SIDECAR_WEB_PORT=udp://[fd00::1]:53", "SIDECAR_WEB_PORT_53_UDP_PROTO=udp",
		"RABBITMQ_PORT=tcp://10.0.0.2:5672", "APP_PORT=tcp://10.0.0.3:80",
	)
	if w := c.Warnings(); len(w) != 0 {
		t.Errorf("warnings: %q", w)
	}
	for _, odd := range []string{"SIDECAR_ADMIN_PORT=" + canary, "SIDECAR_SERVICE_PORT=x", "SIDECAR_PORT_80_TCP_PROTO=x", "SIDECAR_SERVICE_HOST=a b"} {
		refuse(t, strings.Split(odd, "=")[0], odd)
	}
	refuse(t, "SIDECAR_SERVICE_HOSTNAME", "SIDECAR_SERVICE_HOSTNAME=x")
	refuse(t, "SIDECAR_REPORT", "SIDECAR_REPORT=x")
	for name, instead := range map[string]string{
		"APP_PORT": "SIDECAR_APP_URL=", "PORT": "SIDECAR_APP_URL=", "ADMIN_PORT": "SIDECAR_ADMIN_ADDR=", "WEB_PORT": "docs/",
		"RABBITMQ_URL": "SIDECAR_AMQP_URL=", "BROKER_URL_FILE": "SIDECAR_AMQP_URL=", "RABBIT_PASS": "SIDECAR_AMQP_PASSWORD",
		"DATABASE_URL": "SIDECAR_OUTBOX_DSN", "MAX_ATTEMPTS": "SIDECAR_MAX_RETRIES, ", "DEAD_LETTER_QUEUE": "SIDECAR_DLQ ",
	} {
		refuseSaying(t, instead, "SIDECAR_"+name, "SIDECAR_"+name+"=3000") // no service link: it has no tcp:// before it
	}
}

// TestGoneVariables: a variable that was removed says what to do instead, for one subscription too.
func TestGoneVariables(t *testing.T) {
	t.Parallel()
	for name, instead := range gone {
		want := "was removed in this release: " + instead
		l := newLoader(map[string]string{subscriptions: "orders"}, "")
		for _, name := range []string{prefix + name, ownPrefix + "ORDERS_" + name} {
			if got := l.unknown(name); got != want {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
	refuseSaying(t, "removed in this release: nothing is written", "SIDECAR_CRASH_DIR", "SIDECAR_CRASH_DIR=/tmp")
}

// TestPlanFileReplacesVariables: every variable that only makes a plan is refused, with its place in the file.
func TestPlanFileReplacesVariables(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "plan.json")
	write(t, file, "{}\n")
	variables := []string{
		"SIDECAR_TOPOLOGY=per-queue", "SIDECAR_PREFIX=p", "SIDECAR_EXCHANGE=e", "SIDECAR_EXCHANGE_TYPE=topic", "SIDECAR_QUEUE=q",
		"SIDECAR_BINDINGS=e:k", "SIDECAR_RETRY_EXCHANGE=r", "SIDECAR_RETRY_QUEUE=r", "SIDECAR_DLX=d", "SIDECAR_DLQ=d",
		"SIDECAR_QUEUE_TYPE=quorum", "SIDECAR_MESSAGE_TTL=1h", "SIDECAR_DEAD_LETTER=disabled", "SIDECAR_MAX_RETRIES=1",
		"SIDECAR_RETRY_DELAY=1s", "SIDECAR_RETRY_DELAYS=1s", "SIDECAR_QUEUE_ARGUMENTS=x-max-priority=5",
	}
	for _, v := range variables {
		name, _, _ := strings.Cut(v, "=")
		refuseSaying(t, "cannot be combined with SIDECAR_PLAN_FILE: the file says it in $.", name, v, "SIDECAR_PLAN_FILE="+file)
	}
	for _, s := range Describe() {
		for _, v := range s.Variables {
			listed := strings.Contains(strings.Join(variables, " ")+" ", v.Name+"=")
			if (v.Tag.Get("plan") != "") != listed {
				t.Errorf("%s: a plan's file says it, or not", v.Name)
			}
		}
	}
}

// TestSubscriptions: a subscription has its own value, else that of all subscriptions, else the default.
func TestSubscriptions(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "from-a-file\n")
	c := load(t, "SIDECAR_SUBSCRIPTIONS=orders, big-refunds", "SIDECAR_CONCURRENCY=4", "SIDECAR_SUB_BIG_REFUNDS_CONCURRENCY=2",
		"SIDECAR_APP_URL=http://127.0.0.1:8080/{subscription}", "SIDECAR_QUEUE=q.{subscription}", "SIDECAR_SUB_ORDERS_QUEUE=queue.of.{subscription}",
		"SIDECAR_BINDINGS=x:{subscription}.#", "SIDECAR_SUB_BIG_REFUNDS_APP_TIMEOUT=7s", "SIDECAR_APP_TOKEN=common",
		"SIDECAR_SUB_ORDERS_APP_TOKEN_FILE="+file, "SIDECAR_MEMORY=64MiB", "SIDECAR_SUB_ORDERS_FORWARD_HEADERS=x-*", "SIDECAR_SUB_ORDERS_PARK_ON_STATUS=422")
	if len(c.Subscriptions) != 2 || len(c.Subscribed()) != 2 || c.Subscription != "" || c.Service.Name != "wms-cincout" {
		t.Fatalf("%+v", c)
	}
	orders, refunds := c.Subscriptions[0], c.Subscriptions[1]
	if orders.Subscription != "orders" || refunds.Subscription != "big-refunds" || orders.Subscriptions != nil {
		t.Errorf("named %q and %q", orders.Subscription, refunds.Subscription)
	}
	if o, r := orders.Window, refunds.Window; o.Concurrency != 4 || o.Prefetch != 8 || r.Concurrency != 2 || r.Prefetch != 4 || o.Memory != 64<<20 || r.Memory != 64<<20 {
		t.Errorf("%+v, %+v", o, r)
	}
	if o, r := orders.App, refunds.App; o.URL != "http://127.0.0.1:8080/orders" || r.URL != "http://127.0.0.1:8080/big-refunds" ||
		o.Timeout != 30*time.Second || r.Timeout != 7*time.Second {
		t.Errorf("%+v, %+v", o, r)
	}
	wantValue(t, orders.App.Token, "from-a-file")
	wantValue(t, refunds.App.Token, "common")
	if o, r := orders.Topology, refunds.Topology; o.Queue != "queue.of.orders" || r.Queue != "q.big-refunds" ||
		o.Bindings[0] != (Binding{"x", "orders.#"}) || r.Bindings[0] != (Binding{"x", "big-refunds.#"}) {
		t.Errorf("%+v, %+v", o, r)
	}
	if !slices.Equal(orders.Request.ForwardHeaders, []string{"x-*"}) || !slices.Equal(refunds.Request.ForwardHeaders, []string{"*"}) ||
		len(orders.Retry.ParkOnStatus) != 1 || len(refunds.Retry.ParkOnStatus) != 0 {
		t.Error("headers or statuses")
	}
	if one := load(t); len(one.Subscriptions) != 0 || len(one.Subscribed()) != 1 || one.Subscribed()[0] != one {
		t.Error("without names there is one subscription")
	}
	if off := load(t, "SIDECAR_SUBSCRIPTIONS=a,b", "SIDECAR_CONSUME=off", "SIDECAR_PUBLISH_ADDR=127.0.0.1:0"); len(off.Subscribed()) != 0 || len(off.Subscriptions) != 2 {
		t.Error("SIDECAR_CONSUME=off consumes")
	}
}

// TestSubscriptionSettings: each value is shown with the variable that says it.
func TestSubscriptionSettings(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "from-a-file\n")
	c := load(t, "SIDECAR_SUBSCRIPTIONS=orders,refunds", "SIDECAR_CONCURRENCY=4", "SIDECAR_SUB_ORDERS_CONCURRENCY=2", "SIDECAR_QUEUE=q.{subscription}",
		"SIDECAR_SUB_ORDERS_APP_TOKEN_FILE="+file)
	shows(t, c.Subscriptions[0], []Setting{
		{Name: "SIDECAR_SERVICE", Value: "wms-cincout", Origin: "environment", Variable: "SIDECAR_SERVICE"},
		{Name: "SIDECAR_CONCURRENCY", Value: "2", Origin: "environment", Variable: "SIDECAR_SUB_ORDERS_CONCURRENCY", Own: true},
		{Name: "SIDECAR_PREFETCH", Value: "4", Origin: "derived", Own: true},
		{Name: "SIDECAR_QUEUE", Value: "q.orders", Origin: "environment", Variable: "SIDECAR_QUEUE", Own: true},
		{Name: "SIDECAR_APP_TOKEN", Value: "***", Origin: "file:" + file, Variable: "SIDECAR_SUB_ORDERS_APP_TOKEN_FILE", Own: true},
		{Name: "SIDECAR_MEMORY", Value: "256MiB", Origin: "derived"},
	})
}

// TestSubscriptionWarnings: a warning that holds for all is there once, another one behind the names it holds for.
func TestSubscriptionWarnings(t *testing.T) {
	t.Parallel()
	got := load(t, "SIDECAR_SUBSCRIPTIONS=orders,refunds,returns", "SIDECAR_APP_URL=http://app.example/", "SIDECAR_SUB_REFUNDS_APP_URL=http://127.0.0.1:1/",
		"SIDECAR_SUB_ORDERS_APP_TOKEN=x", "SIDECAR_OUTBOX_TABLE=t").Warnings()
	want := []string{
		"SIDECAR_OUTBOX_TABLE: not used: there is no outbox, because SIDECAR_OUTBOX_DSN is not set",
		"orders: SIDECAR_APP_URL: the app is not on this machine: messages leave it, unencrypted",
		"orders: SIDECAR_SUB_ORDERS_APP_TOKEN: goes over an unencrypted link",
		"returns: SIDECAR_APP_URL: the app is not on this machine: messages leave it, unencrypted",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestEachVariableForOneSubscription: what the documentation says can be set for one subscription can, and nothing else.
func TestEachVariableForOneSubscription(t *testing.T) {
	t.Parallel()
	for _, s := range Describe() {
		for _, v := range s.Variables {
			if !strings.HasPrefix(v.Name, prefix) {
				continue
			}
			name := OwnName("orders", v.Name)
			_, err := Load([]string{"SIDECAR_SERVICE=a-b", "SIDECAR_SUBSCRIPTIONS=orders", name + "=\x01"}, 0)
			refused := err != nil && strings.Contains(err.Error(), name+": cannot be set for one subscription: "+v.Name+" holds for the whole sidecar")
			if refused == v.Scoped {
				t.Errorf("%s: per subscription: %v: %v", name, v.Scoped, err)
			}
		}
	}
}

// TestAPlaceForEach: with fewer places than subscriptions one could keep another from its own.
func TestAPlaceForEach(t *testing.T) {
	t.Parallel()
	refuseSaying(t, "at least the number of subscriptions, which is 3", "SIDECAR_MAX_CONCURRENCY", "SIDECAR_SUBSCRIPTIONS=a,b,c",
		"SIDECAR_MAX_CONCURRENCY=2")
	load(t, "SIDECAR_SUBSCRIPTIONS=a,b,c", "SIDECAR_MAX_CONCURRENCY=3")
}
