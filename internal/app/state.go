package app

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"sidecar/internal/admin"
	"sidecar/internal/broker"
	"sidecar/internal/budget"
	"sidecar/internal/flow"
	"sidecar/internal/topology"
)

// newBroker makes the two dialers: publishing has a connection of its own, because a connection that publishes during
// a memory alarm is not read any more and would take the acks with it.
func (a *App) newBroker() {
	consuming := brokerOptions(a.cfg, "consume", a.build, a.log, a.registry)
	consuming.Memory, consuming.Spool = a.budget.Account(budget.Deliveries), a.spool
	a.consuming = broker.NewDialer(consuming)
	a.publisher = broker.NewPublisher(broker.NewDialer(brokerOptions(a.cfg, "publish", a.build, a.log, a.registry)))
	a.publisher.Greet(a.mayPublish)
	a.watcher = topology.NewWatcher(topology.WatchOptions{
		Plan: a.plan, Logger: a.log, Registerer: a.consumeRegistry(), Report: a.missing, Ask: a.measure,
	})
}

func (a *App) adminOptions() admin.Options {
	o := admin.Options{
		AdminAddr: a.cfg.Listen.AdminAddr, ControlAddr: a.cfg.Listen.ControlAddr, Grace: a.cfg.Process.ShutdownGrace,
		State: state{a}, Topology: picture(a.plan), DeadLetters: a.deadLetters, Console: admin.ConsoleFiles(),
		Memory: a.budget.Account(budget.Requests), Gatherer: a.registry, Logger: a.log,
	}
	if a.cfg.Listen.ControlToken.IsSet() {
		o.Token = listenerToken(a.cfg.Listen.ControlToken, a.log)
	}
	if a.cfg.Listen.ControlReadToken.IsSet() {
		o.ReadToken = listenerToken(a.cfg.Listen.ControlReadToken, a.log)
	}
	return o
}

// state shows the app to its two HTTP surfaces.
type state struct{ a *App }

func (s state) Drain()                    { s.a.drainOnce.Do(func() { close(s.a.drainAsk) }) }
func (s state) Draining() <-chan struct{} { return s.a.draining }
func (s state) Drained() <-chan struct{}  { return s.a.drained }

func (s state) Pause() {
	if s.a.flow.Hold(flow.Operator, "POST /pause") {
		s.a.log.Info("paused", "reason", string(flow.Operator), "queue", s.a.plan.Queue)
	}
}

func (s state) Resume() {
	if s.a.flow.Lift(flow.Operator) {
		s.a.log.Info("resumed", "reason", string(flow.Operator), "queue", s.a.plan.Queue)
	}
}

// Ready is true while messages are taken, or not taken on purpose: an app that is away or asked for time, a breaker
// and an operator are purpose, a broker that is away, a topology that would lose messages and a drain are not.
func (s state) Ready() admin.Readiness {
	a := s.a
	if !a.consumes() {
		return s.readyToPublish()
	}
	findings, looked := a.fits.last()
	topologyDetail := ""
	if len(findings) > 0 {
		topologyDetail = findings[0].String()
	}
	pauses := a.flow.Holds()
	paused := make([]string, 0, len(pauses))
	for _, p := range pauses {
		paused = append(paused, string(p.Reason))
	}
	consuming := admin.Check{Name: "consuming", OK: a.consumer.Active() || a.connected.Load() && len(pauses) > 0}
	if len(pauses) > 0 {
		consuming.Detail = "paused: " + strings.Join(paused, ", ")
	}
	r := admin.Readiness{Ready: true, Checks: []admin.Check{
		{Name: admin.CheckBroker, OK: a.connected.Load()},
		{Name: "topology", OK: looked && len(findings) == 0, Detail: topologyDetail},
		consuming,
		{Name: "publishing", OK: !slices.Contains(paused, string(flow.Publishing)), Detail: stuckDetail(a.consumer.Stuck())},
		{Name: "not_draining", OK: !closed(a.draining)},
	}}
	for _, c := range r.Checks {
		r.Ready = r.Ready && c.OK
	}
	// Not a condition: an app that is away is a pause on purpose.
	r.Checks = append(r.Checks, admin.Check{Name: "app", OK: a.flow.AppUp()})
	r.Checks = append(r.Checks, a.relay.check()...) // nor these: they say nothing of consuming
	r.Checks = append(r.Checks, a.endpoint.check()...)
	return r
}

// Status is a picture of the moment; its parts may be a moment apart.
func (s state) Status() admin.Status {
	a := s.a
	findings, _ := a.fits.last()
	st := admin.Status{
		State: s.name(), Version: a.build.Version, Commit: a.build.Commit, Started: a.started,
		Service: a.cfg.Service.Name, Queue: a.plan.Queue, Topology: a.plan.Preset,
		Pauses: []admin.Pause{}, Findings: []admin.Finding{}, RetryDelays: []string{}, Warnings: a.warnings(),
		Consume:  admin.Connection{Connected: a.connected.Load()},
		Publish:  a.publishing(),
		App:      admin.App{Up: a.flow.AppUp(), URL: shownURL(a.cfg.App.URL)},
		Inflight: int(a.consumer.Inflight()), Delayed: int(a.consumer.Delayed()),
		Concurrency: a.cfg.Window.Concurrency, Prefetch: a.cfg.Window.Prefetch, MaxRetries: a.plan.MaxRetries,
	}
	for _, h := range a.holds() {
		st.Pauses = append(st.Pauses, admin.Pause{Reason: string(h.Reason), Detail: h.Detail, Since: h.Since, Until: h.Until})
	}
	for _, f := range findings {
		st.Findings = append(st.Findings, admin.Finding{
			Object: f.Object, Problem: string(f.Problem), Wanted: f.Wanted, Found: f.Found, Fix: f.Fix,
		})
	}
	for _, w := range a.plan.Waits {
		st.RetryDelays = append(st.RetryDelays, w.Delay.String())
	}
	return st
}

func (s state) name() string {
	a := s.a
	switch {
	case closed(a.drained):
		return admin.Drained
	case closed(a.draining):
		return admin.Draining
	case !a.consumes():
		return admin.Publishing
	case a.connected.Load() && !a.flow.Open():
		return admin.Paused
	case a.connected.Load():
		return admin.Consuming
	}
	return admin.Starting
}

func stuckDetail(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d messages wait for a park or retry publish that failed", n)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// shownURL leaves out what may be a secret.
func shownURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
