package app

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"sidecar/internal/admin"
	"sidecar/internal/broker"
	"sidecar/internal/budget"
	"sidecar/internal/config"
	"sidecar/internal/publish"
	"sidecar/internal/topology"
)

// endpoint is the listener that takes messages from the app. Its connection is its own: neither what the app publishes nor
// what a broker says to it touches the parking of messages, and the other way round.
type endpoint struct {
	server    *publish.Server
	publisher *broker.Publisher
	stopLink  context.CancelFunc // of its connection; set by start
	ended     chan struct{}      // closed when that has ended
}

// newEndpoint returns nil when there is no such listener.
func (a *App) newEndpoint() *endpoint {
	if a.cfg.Publish.Addr == "" {
		return nil
	}
	p := broker.NewPublisher(broker.NewDialer(brokerOptions(a.cfg, "publish endpoint", a.build, a.log, a.registry)))
	return &endpoint{publisher: p, server: publish.New(a.publishOptions(p)), ended: make(chan struct{})}
}

func (a *App) publishOptions(p *broker.Publisher) publish.Options {
	c := &a.cfg.Publish
	o := publish.Options{
		Addr: c.Addr, Exchanges: publishAliases(a.cfg), RoutingKeys: c.RoutingKeys, MaxBody: int64(c.MaxBody),
		MaxInflight: c.MaxInflight, Timeout: c.Timeout, Publisher: p, Memory: a.budget.Account(budget.Publish), Tracing: a.tracing, Registerer: a.registry, Logger: a.log,
	}
	if c.Token.IsSet() {
		o.Token = listenerToken(c.Token, a.log)
	}
	return o
}

// publishAliases are the exchanges that may be published to, by their aliases.
func publishAliases(cfg *config.Config) map[string]string {
	aliases := map[string]string{config.DefaultAlias: mainExchange(cfg)}
	for _, e := range cfg.Publish.Exchanges {
		aliases[e.Name] = exchangeName(e.Value)
	}
	return aliases
}

// published are the exchanges that the app publishes to through the sidecar, as far as the configuration names them.
func published(cfg *config.Config) []string {
	var list []string
	if cfg.Publish.Addr != "" {
		list = slices.Collect(maps.Values(publishAliases(cfg)))
	}
	if cfg.Outbox.DSN.IsSet() {
		list = append(list, exchangeName(cmp.Or(cfg.Outbox.Exchange, mainExchange(cfg))))
	}
	return list
}

// mainExchange is the one that the service's own messages arrive at.
func mainExchange(cfg *config.Config) string { return topology.Fill(planOptions(cfg)).Exchange }

// exchangeName is what AMQP calls an exchange of the configuration: the default exchange has no name.
func exchangeName(name string) string {
	if name == "amq.default" {
		return ""
	}
	return name
}

// listen binds the listener and returns where, "" when there is none.
func (e *endpoint) listen() (string, error) {
	if e == nil {
		return "", nil
	}
	return e.server.Listen()
}

// start serves until stop.
func (e *endpoint) start(group *errgroup.Group) {
	if e == nil {
		return
	}
	link, cancel := context.WithCancel(context.Background())
	e.stopLink = cancel
	group.Go(func() error {
		defer close(e.ended)
		return ended(e.publisher.Run(link))
	})
	group.Go(func() error { return e.server.Serve(context.Background()) })
}

// leastStop is what requests under way have to finish even when the grace is over.
const leastStop = time.Second

// stop takes no more messages, finishes those under way until the time is up, or now, and closes the connection.
func (e *endpoint) stop(until time.Time, now <-chan struct{}) {
	if e == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(time.Until(until), leastStop))
	defer cancel()
	finished := make(chan struct{})
	go func() {
		select {
		case <-now:
			cancel()
		case <-finished:
		}
	}()
	e.server.Shutdown(ctx)
	close(finished)
	e.stopLink()
	<-e.ended
	e.server.Wait()
}

// check says in the readiness whether the app can publish. It is no condition: the messages that are consumed need none of it.
func (e *endpoint) check() []admin.Check {
	if e == nil {
		return nil
	}
	c := admin.Check{Name: "publish_endpoint", OK: e.server.Ready()}
	switch {
	case c.OK:
	case e.publisher.Blocked():
		c.Detail = "blocked by the broker's alarm"
	case !e.publisher.Connected():
		c.Detail = "not connected to the broker"
	default:
		c.Detail = "stopping"
	}
	return []admin.Check{c}
}
