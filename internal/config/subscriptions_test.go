package config

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

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
