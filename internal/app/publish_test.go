package app

import (
	"slices"
	"testing"

	"sidecar/internal/config"
	"sidecar/internal/testkit/must"
)

// TestOneMainExchange: rows of the outbox and requests without another exchange go to the service's main exchange, and
// not to an exchange of another service that its queue is bound to first.
func TestOneMainExchange(t *testing.T) {
	t.Parallel()
	for _, bindings := range []string{"", "orders.events:order.*", "orders.events:order.*,demo.main-exchange:"} {
		cfg := load(t, "SIDECAR_BINDINGS="+bindings, "SIDECAR_PUBLISH_ADDR=127.0.0.1:0", "SIDECAR_OUTBOX_DSN=host=/tmp")
		plan := must.Get(newPlan(cfg))(t)
		rows, requests := fresh(t, cfg).outboxOptions(nil, plan).Exchange, publishAliases(cfg, plan)[config.DefaultAlias]
		const want = "demo.main-exchange"
		if rows != want || requests != want || !slices.Equal(published(cfg, plan), []string{want, want}) {
			t.Errorf("bound to %q: rows to %q, requests to %q, permissions for %q", bindings, rows, requests, published(cfg, plan))
		}
	}
	cfg := load(t, "SIDECAR_OUTBOX_EXCHANGE=amq.default", "SIDECAR_OUTBOX_DSN=host=/tmp")
	plan := must.Get(newPlan(cfg))(t)
	if rows := fresh(t, cfg).outboxOptions(nil, plan).Exchange; rows != "" || !slices.Equal(published(cfg, plan), []string{""}) {
		t.Errorf("amq.default: rows to %q, permissions for %q", rows, published(cfg, plan))
	}
}
