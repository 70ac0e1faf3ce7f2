package app

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"sidecar/internal/admin"
	"sidecar/internal/broker"
	"sidecar/internal/config"
	"sidecar/internal/flow"
)

// Drain begins a drain; later calls change nothing.
func (a *App) Drain() { a.drainOnce.Do(func() { close(a.drainAsk) }) }

// Draining is closed when a drain has begun.
func (a *App) Draining() <-chan struct{} { return a.draining }

// Drained is closed when the drain has ended.
func (a *App) Drained() <-chan struct{} { return a.drained }

// Subscriptions returns the names of the subscriptions; none when there is one without a name.
func (a *App) Subscriptions() (names []string) {
	for _, s := range a.subscriptions {
		if name := s.cfg.Subscription; name != "" {
			names = append(names, name)
		}
	}
	return names
}

// of returns the subscription with that name, in a list; "": all.
func (a *App) of(name string) []*subscription {
	if name == "" {
		return a.subscriptions
	}
	return slices.DeleteFunc(slices.Clone(a.subscriptions), func(s *subscription) bool {
		return s.cfg.Subscription != name
	})
}

// Pause takes no more messages until Resume.
func (a *App) Pause(subscription string) {
	for _, sub := range a.of(subscription) {
		if sub.flow.Hold(flow.Operator, "POST /pause") {
			sub.log.Info("paused", "reason", string(flow.Operator))
		}
	}
}

// Resume ends Pause, and no other reason to pause.
func (a *App) Resume(subscription string) {
	for _, sub := range a.of(subscription) {
		if sub.flow.Lift(flow.Operator) {
			sub.log.Info("resumed", "reason", string(flow.Operator))
		}
	}
}

// Ready reports ready while messages are consumed, or are not consumed on purpose: an app that is down or asked for
// time, an open breaker and an operator are purpose. No broker, a queue that the broker does not let it consume, a
// topology with findings and a drain are not. The
// connection is one check, the rest is a check for each subscription.
func (a *App) Ready(subscription string) admin.Readiness {
	broker := admin.Check{Name: admin.CheckBroker, OK: a.publishing().Connected}
	var checks, apps []admin.Check
	if len(a.subscriptions) > 0 {
		broker.OK = connected(a.of(subscription))
		for _, s := range a.of(subscription) {
			checks = append(checks, s.conditions()...)
			apps = append(apps, admin.Check{Name: "app", Subscription: s.cfg.Subscription, OK: s.flow.AppUp()})
		}
	}
	draining := admin.Check{Name: "not_draining", OK: !admin.Closed(a.draining)}
	checks = append(append([]admin.Check{broker}, checks...), draining)
	r := admin.Readiness{Checks: checks}
	r.Ready = !slices.ContainsFunc(checks, func(c admin.Check) bool { return !c.OK })
	// The rest is not a condition: consuming goes on without them, or pauses on purpose.
	r.Checks = append(r.Checks, apps...)
	for _, s := range a.senders {
		r.Checks = append(r.Checks, s.check())
	}
	return r
}

// conditions are those of the readiness of a subscription.
func (s *subscription) conditions() []admin.Check {
	name := s.cfg.Subscription
	findings, checked := s.status.last()
	objects := admin.Check{Name: "topology", Subscription: name, OK: checked && len(findings) == 0}
	if len(findings) > 0 {
		objects.Detail = findings[0].String()
	}
	var paused []string
	consuming := admin.Check{Name: "consuming", Subscription: name}
	for _, h := range s.flow.Holds() {
		paused = append(paused, string(h.Reason))
		if h.Reason == flow.Queue {
			consuming.Detail = h.Detail
		}
	}
	onPurpose := s.connected() && len(paused) > 0 && !s.flow.Has(flow.Queue)
	consuming.OK = s.consumer.Active() || onPurpose
	if len(paused) > 0 {
		consuming.Detail = cmp.Or(consuming.Detail, "paused: "+strings.Join(paused, ", "))
	}
	publishing := admin.Check{
		Name: "publishing", Subscription: name, OK: !s.flow.Has(flow.Publishing), Detail: s.unpublished(),
	}
	return []admin.Check{objects, consuming, publishing}
}

// Status returns the state of the moment; its fields may be read a moment after one another.
func (a *App) Status() admin.Status {
	st := admin.Status{
		Consumption: a.consumption(a.subscriptions), Version: a.build.Version, Commit: a.build.Commit, Started: a.started,
		Service: a.cfg.Service.Name, Publish: a.publishing(),
	}
	if len(a.subscriptions) > 0 {
		st.Consume = &admin.Connection{Connected: connected(a.subscriptions)}
		if !st.Consume.Connected {
			st.Consume.Error = a.dialer.Failure()
		}
	}
	if since, reason := a.alarm.Since(); !since.IsZero() {
		st.Blocked, st.Publish.Blocked = &admin.Blocked{Since: since, Reason: reason}, true
	}
	st.Warnings = a.warnings()
	for _, s := range a.senders {
		if c := s.check(); !c.OK {
			st.Problems = append(st.Problems, c.Name+": "+c.Detail)
		}
	}
	for _, name := range a.Subscriptions() {
		st.Subscriptions = append(st.Subscriptions, admin.Subscription{Name: name, Consumption: a.consumption(a.of(name))})
	}
	return st
}

// consumption is the state of some subscriptions; without any, that of a sidecar that only publishes.
func (a *App) consumption(subs []*subscription) admin.Consumption {
	c := admin.Consumption{
		State: a.state(subs), Consumed: consumed(subs),
		Pauses: []admin.Pause{}, Findings: []admin.Finding{}, Warnings: []string{},
	}
	for _, sub := range subs {
		of := admin.Of{Subscription: sub.cfg.Subscription, Queue: sub.plan.Queue}
		for _, h := range sub.flow.Holds() {
			c.Pauses = append(c.Pauses, admin.Pause{Of: of, Hold: h})
		}
		findings, _ := sub.status.last()
		for _, f := range findings {
			c.Findings = append(c.Findings, admin.Finding{Of: of, Finding: f})
		}
		for _, r := range sub.sightings.Recent() {
			c.Redeclared = append(c.Redeclared, admin.Redeclared{Of: of, Redeclared: r})
		}
		if text := sub.unpublished(); text != "" {
			c.Problems = append(c.Problems, text)
		}
		c.Warnings = append(c.Warnings, sub.warnings(c.Warnings)...)
	}
	return c
}

// consumed returns the queues and the app of some subscriptions; nil without any: then no app is asked, and there is no
// queue.
func consumed(subs []*subscription) *admin.Consumed {
	if len(subs) == 0 {
		return nil
	}
	first := subs[0]
	c := &admin.Consumed{
		App: admin.App{Up: appUp(subs)}, Inflight: inflight(subs), MaxRetries: first.plan.MaxRetries, RetryDelays: []string{},
	}
	for _, sub := range subs {
		c.Queue = withName(c.Queue, sub.plan.Queue)
		c.Topology = withName(c.Topology, sub.plan.Preset)
		c.App.URL = withName(c.App.URL, shownURL(sub.cfg.App.URL))
		c.Bindings = append(c.Bindings, feeds(sub.plan)...)
		c.Concurrency += atOnce(sub.cfg)
		c.Prefetch += sub.consumer.Prefetch()
		c.Delayed += int(sub.consumer.Delayed())
		c.Waiting = plusWaiting(c.Waiting, sub)
	}
	for _, d := range first.plan.Delays() {
		c.RetryDelays = append(c.RetryDelays, d.String())
	}
	return c
}

// plusWaiting returns n with what waits in the subscription; nil if neither is known.
func plusWaiting(n *int, sub *subscription) *int {
	more, ok := sub.consumer.Waiting()
	switch {
	case !ok:
		return n
	case n != nil:
		more += *n
	}
	return &more
}

// withName adds a name to names that are separated by commas, unless it is one of them.
func withName(names, name string) string {
	switch {
	case names == "":
		return name
	case slices.Contains(strings.Split(names, ", "), name):
		return names
	}
	return names + ", " + name
}

func (a *App) state(subs []*subscription) string {
	switch {
	case admin.Closed(a.drained):
		return admin.Drained
	case admin.Closed(a.draining):
		return admin.Draining
	case len(subs) == 0:
		return admin.Publishing
	case !connected(subs):
		return admin.Starting
	case slices.ContainsFunc(subs, (*subscription).taking):
		return admin.Consuming
	case slices.ContainsFunc(subs, (*subscription).held):
		return admin.Paused
	}
	return admin.Starting // the topology is checked, or the next consumer waits after the end of one
}

// publishing returns the state of the connection that parks and retries; where nothing is consumed, of the senders'.
func (a *App) publishing() admin.Connection {
	publishers := []*broker.Publisher{a.publisher}
	if a.publisher == nil {
		publishers = nil
		for _, s := range a.senders {
			publishers = append(publishers, s.publisher)
		}
	}
	c := admin.Connection{Connected: true}
	for _, p := range publishers {
		if !p.Connected() {
			c.Connected, c.Error = false, cmp.Or(c.Error, p.Failure())
		}
	}
	return c
}

// connected reports whether there is a session: it is the same for all, unless a queue has cost one its own.
func connected(subs []*subscription) bool {
	return slices.ContainsFunc(subs, (*subscription).connected)
}

// appUp reports whether the app is up for each; false without any.
func appUp(subs []*subscription) bool {
	return len(subs) > 0 && !slices.ContainsFunc(subs, func(s *subscription) bool { return !s.flow.AppUp() })
}

// atOnce returns how many messages of a subscription can be in flight.
func atOnce(cfg *config.Config) int { return cfg.Window.Concurrency * cfg.Window.BatchSize }

// inflight returns how many messages are in flight.
func inflight(subs []*subscription) (n int) {
	for _, s := range subs {
		n += int(s.consumer.Inflight())
	}
	return n
}

// shownURL returns raw without the parts that may be secret.
func shownURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
