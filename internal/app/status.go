package app

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"sidecar/internal/admin"
	"sidecar/internal/broker"
	"sidecar/internal/flow"
)

// Drain begins a drain; later calls change nothing.
func (a *App) Drain() { a.drainOnce.Do(func() { close(a.drainAsk) }) }

// Draining is closed when a drain has begun.
func (a *App) Draining() <-chan struct{} { return a.draining }

// Drained is closed when the drain has ended.
func (a *App) Drained() <-chan struct{} { return a.drained }

// Pause takes no more messages until Resume.
func (a *App) Pause() {
	for _, sub := range a.subscriptions {
		if sub.flow.Hold(flow.Operator, "POST /pause") {
			sub.log.Info("paused", "reason", string(flow.Operator))
		}
	}
}

// Resume ends Pause, and no other reason to pause.
func (a *App) Resume() {
	for _, sub := range a.subscriptions {
		if sub.flow.Lift(flow.Operator) {
			sub.log.Info("resumed", "reason", string(flow.Operator))
		}
	}
}

// Ready reports ready while messages are consumed, or are not consumed on purpose: an app that is down or asked for
// time, an open breaker and an operator are purpose. No broker, a topology with findings and a drain are not.
func (a *App) Ready() admin.Readiness {
	var checks []admin.Check
	for _, sub := range a.subscriptions {
		checks = mergeChecks(checks, sub.checks())
	}
	if len(a.subscriptions) == 0 {
		checks = []admin.Check{{Name: admin.CheckBroker, OK: a.publishing().Connected}}
	}
	checks = append(checks, admin.Check{Name: "not_draining", OK: !closed(a.draining)})
	r := admin.Readiness{Checks: checks}
	r.Ready = !slices.ContainsFunc(checks, func(c admin.Check) bool { return !c.OK })
	// The rest is not a condition: consuming goes on without them, or pauses on purpose.
	if len(a.subscriptions) > 0 {
		r.Checks = append(r.Checks, admin.Check{Name: "app", OK: a.appUp()})
	}
	for _, s := range a.senders {
		r.Checks = append(r.Checks, s.check())
	}
	return r
}

// checks are the conditions of the readiness of one subscription.
func (s *subscription) checks() []admin.Check {
	findings, checked := s.status.last()
	topology := admin.Check{Name: "topology", OK: checked && len(findings) == 0}
	if len(findings) > 0 {
		topology.Detail = findings[0].String()
	}
	var paused []string
	for _, h := range s.flow.Holds() {
		paused = append(paused, string(h.Reason))
	}
	consuming := admin.Check{Name: "consuming", OK: s.consumer.Active() || s.connected.Load() && len(paused) > 0}
	if len(paused) > 0 {
		consuming.Detail = "paused: " + strings.Join(paused, ", ")
	}
	publishing := admin.Check{Name: "publishing", OK: !slices.Contains(paused, string(flow.Publishing))}
	if n := s.consumer.Unpublished(); n > 0 {
		publishing.Detail = fmt.Sprintf("%d messages wait for a park or retry publish that failed", n)
	}
	return []admin.Check{{Name: admin.CheckBroker, OK: s.connected.Load()}, topology, consuming, publishing}
}

// mergeChecks returns one check of each name: it is OK if all are, and has the first detail.
func mergeChecks(all, more []admin.Check) []admin.Check {
	if all == nil {
		return more
	}
	for i := range all {
		if all[i].OK = all[i].OK && more[i].OK; all[i].Detail == "" {
			all[i].Detail = more[i].Detail
		}
	}
	return all
}

// Status returns the state of the moment; its fields may be read a moment after one another.
func (a *App) Status() admin.Status {
	st := admin.Status{
		State: a.state(), Version: a.build.Version, Commit: a.build.Commit, Started: a.started,
		Service: a.cfg.Service.Name, Queue: a.plan.Queue, Topology: a.plan.Preset,
		Pauses: []admin.Pause{}, Findings: []admin.Finding{}, RetryDelays: []string{}, Warnings: a.warnings(),
		Consume: admin.Connection{Connected: a.connected()}, Publish: a.publishing(),
		App:      admin.App{Up: a.appUp(), URL: shownURL(a.cfg.App.URL)},
		Inflight: a.inflight(), Concurrency: a.cfg.Window.Concurrency, Prefetch: a.cfg.Window.Prefetch,
		MaxRetries: a.plan.MaxRetries,
	}
	for _, sub := range a.subscriptions {
		st.Delayed += int(sub.consumer.Delayed())
		for _, h := range sub.flow.Holds() {
			st.Pauses = append(st.Pauses,
				admin.Pause{Reason: string(h.Reason), Detail: h.Detail, Since: h.Since, Until: h.Until})
		}
		findings, _ := sub.status.last()
		for _, f := range findings {
			st.Findings = append(st.Findings, admin.Finding{
				Object: f.Object, Problem: string(f.Problem), Wanted: f.Wanted, Found: f.Found, Fix: f.Fix,
			})
		}
	}
	for _, w := range a.plan.Waits {
		st.RetryDelays = append(st.RetryDelays, w.Delay.String())
	}
	return st
}

func (a *App) state() string {
	switch {
	case closed(a.drained):
		return admin.Drained
	case closed(a.draining):
		return admin.Draining
	case len(a.subscriptions) == 0:
		return admin.Publishing
	case !a.connected():
		return admin.Starting
	case slices.ContainsFunc(a.subscriptions, func(s *subscription) bool { return s.flow.Open() }):
		return admin.Consuming
	}
	return admin.Paused
}

// publishing returns the state of the connection that parks and retries, or, where nothing is consumed, of the senders'.
func (a *App) publishing() admin.Connection {
	publishers := []*broker.Publisher{a.publisher}
	if a.publisher == nil {
		publishers = nil
		for _, s := range a.senders {
			publishers = append(publishers, s.connection())
		}
	}
	c := admin.Connection{Connected: true}
	for _, p := range publishers {
		c.Connected = c.Connected && p.Connected()
		c.Blocked = c.Blocked || p.Blocked()
	}
	return c
}

// all reports whether is holds for every subscription; false without subscriptions.
func (a *App) all(is func(*subscription) bool) bool {
	return len(a.subscriptions) > 0 &&
		!slices.ContainsFunc(a.subscriptions, func(s *subscription) bool { return !is(s) })
}

// connected reports whether every subscription has a session.
func (a *App) connected() bool {
	return a.all(func(s *subscription) bool { return s.connected.Load() })
}

// appUp reports whether the app is up for every subscription.
func (a *App) appUp() bool { return a.all(func(s *subscription) bool { return s.flow.AppUp() }) }

// inflight returns how many messages are in flight.
func (a *App) inflight() (n int) {
	for _, s := range a.subscriptions {
		n += int(s.consumer.Inflight())
	}
	return n
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
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
