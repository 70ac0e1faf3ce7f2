package app

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/admin"
	"sidecar/internal/broker"
	"sidecar/internal/config"
	"sidecar/internal/flow"
)

// consumes is false for a service that only sends: its queue is none of our business then, and may not even exist.
func (a *App) consumes() bool { return a.cfg.Service.Consume != config.ConsumeOff }

// consumeRegistry takes the metrics of consuming. Where nothing is consumed nobody sees them: a consumer that is not there
// would look like one that has stopped.
func (a *App) consumeRegistry() prometheus.Registerer {
	if a.consumes() {
		return a.registry
	}
	return prometheus.NewRegistry()
}

// senders are the connections that publish where nothing is consumed.
func (a *App) senders() []*broker.Publisher {
	var all []*broker.Publisher
	if a.endpoint != nil {
		all = append(all, a.endpoint.publisher)
	}
	if a.relay != nil {
		all = append(all, a.relay.publisher)
	}
	return all
}

// readyToPublish is readiness where nothing is consumed: messages can leave. What the database is up to is told and no
// condition, as the app is where messages are consumed.
func (s state) readyToPublish() admin.Readiness {
	a := s.a
	connected := !slices.ContainsFunc(a.senders(), func(p *broker.Publisher) bool { return !p.Connected() })
	draining := closed(a.draining)
	return admin.Readiness{Ready: connected && !draining, Checks: slices.Concat([]admin.Check{
		{Name: admin.CheckBroker, OK: connected}, {Name: "not_draining", OK: !draining},
	}, a.relay.check(), a.endpoint.check())}
}

// publishing is the link to the broker that parks and retries, or, where nothing is consumed, those that send.
func (a *App) publishing() admin.Connection {
	links := []*broker.Publisher{a.publisher}
	if !a.consumes() {
		links = a.senders()
	}
	c := admin.Connection{Connected: true}
	for _, p := range links {
		c.Connected = c.Connected && p.Connected()
		c.Blocked = c.Blocked || p.Blocked()
	}
	return c
}

// holds are the reasons why nothing is taken; where nothing is to be taken there are none.
func (a *App) holds() []flow.Hold {
	if !a.consumes() {
		return nil
	}
	return a.flow.Holds()
}
