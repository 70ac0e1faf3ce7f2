package app

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"sidecar/internal/admin"
	"sidecar/internal/budget"
	"sidecar/internal/config"
	"sidecar/internal/deadletter"
	"sidecar/internal/publish"
	"sidecar/internal/topology"
)

// leastStop is how long requests may take to finish, also when the grace is over.
const leastStop = time.Second

// newEndpoint returns the listener for messages of the app.
func newEndpoint(sh shared, plan *topology.Plan, owners []deadletter.Owner) (*publish.Server, sender) {
	c := &sh.cfg.Publish
	largest := sh.cfg.Window.MaxBody
	for _, s := range sh.cfg.Subscriptions {
		largest = max(largest, s.Window.MaxBody)
	}
	p := sh.newPublisher("publish endpoint", mainExchange(sh.cfg, plan))
	server := publish.New(publish.Options{
		Addr: c.Addr, Exchanges: publishAliases(sh.cfg, plan), Bindings: bindingKeys(owners),
		RoutingKeys: c.RoutingKeys, MaxBody: int64(largest),
		Timeout: c.Timeout, Token: listenerToken(c.Token, sh.log), Publisher: p,
		Memory: sh.budget.Account(budget.Publish), Tracing: sh.tracing, Registerer: sh.registry, Logger: sh.log,
	})
	stop := func(t stopTime) {
		ctx, cancel := context.WithTimeout(context.Background(), max(time.Until(t.until), leastStop))
		defer cancel()
		defer context.AfterFunc(t.now, cancel)()
		server.Shutdown(ctx)
	}
	return server, sender{part{"publish endpoint", server.Serve, stop}, p, func() admin.Check {
		problem := server.Problem()
		return admin.Check{Name: "publish_endpoint", OK: problem == "", Detail: problem}
	}}
}

// bindingKeys returns the keys by which the queues of all subscriptions are bound, separated by commas, by exchange.
func bindingKeys(owners []deadletter.Owner) map[string]string {
	keys := map[string]string{}
	for _, o := range owners {
		for _, b := range feeds(o.Plan) {
			keys[b.Exchange] = withName(keys[b.Exchange], cmp.Or(b.Key, `""`))
		}
	}
	return keys
}

// publishAliases returns the exchanges that the app may publish to, by alias.
func publishAliases(cfg *config.Config, plan *topology.Plan) map[string]string {
	aliases := map[string]string{config.DefaultAlias: mainExchange(cfg, plan)}
	for alias, exchange := range cfg.Publish.Exchanges {
		aliases[alias] = exchangeName(exchange)
	}
	return aliases
}

// published returns the exchanges of the configuration that the app publishes to through the sidecar.
func published(cfg *config.Config, plan *topology.Plan) []string {
	var list []string
	if cfg.Publish.Addr != "" {
		list = slices.Sorted(maps.Values(publishAliases(cfg, plan)))
	}
	if cfg.Outbox.DSN.IsSet() {
		list = append(list, outboxExchange(cfg, plan))
	}
	return list
}

// mainExchange returns the service's main exchange: SIDECAR_EXCHANGE or the preset's, whatever SIDECAR_BINDINGS names.
// In a plan from a file it is the exchange of the first binding of the service's queue.
func mainExchange(cfg *config.Config, plan *topology.Plan) string {
	if !plan.FromFile {
		return topology.Fill(planOptions(cfg)).Exchange
	}
	for _, b := range plan.Bindings {
		if b.Queue == plan.Queue {
			return b.Exchange
		}
	}
	return ""
}

// outboxExchange returns the exchange of outbox rows that name none.
func outboxExchange(cfg *config.Config, plan *topology.Plan) string {
	return exchangeName(publishAliases(cfg, plan)[config.DefaultAlias])
}

// exchangeName returns the AMQP name of an exchange of the configuration: the name of the default exchange is empty.
func exchangeName(name string) string {
	if name == topology.DefaultExchange {
		return ""
	}
	return name
}
