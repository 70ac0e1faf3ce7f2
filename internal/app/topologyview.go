package app

import (
	"time"

	"sidecar/internal/admin"
	"sidecar/internal/admin/dlq"
	"sidecar/internal/budget"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// listeners builds the listeners for operators.
func (a *App) listeners() error {
	dead := dlq.Options{Service: a.cfg.Service.Name, Logger: a.log}
	var views []admin.Topology
	for i, s := range a.subscriptions {
		if i > 0 && s.cfg == a.subscriptions[i-1].cfg { // another queue of the same subscription
			continue
		}
		plan, err := newPlan(s.cfg)
		if err != nil {
			return err
		}
		views = append(views, topologyView(s.cfg.Subscription, plan))
	}
	if len(views) == 0 {
		views = []admin.Topology{topologyView("", a.plan)}
	} else { // they name one queue: of the first
		dead.Queue, dead.Main = a.subscriptions[0].deadLetters, a.subscriptions[0].plan.Queue
	}
	l := &a.cfg.Listen
	a.admin = admin.New(admin.Options{
		AdminAddr: l.AdminAddr, ControlAddr: l.ControlAddr, Grace: a.cfg.Process.ShutdownGrace,
		Token: listenerToken(l.ControlToken, a.log), ReadToken: listenerToken(l.ControlReadToken, a.log),
		State: a, Topologies: views, DeadLetters: dlq.New(dead),
		Memory: a.budget.Account(budget.Requests), Gatherer: a.registry, Logger: a.log,
	})
	return nil
}

// topologyView returns the plan of a subscription in the form of the control listener.
func topologyView(subscription string, p *topology.Plan) admin.Topology {
	t := admin.Topology{
		Subscription: subscription,
		Preset:       p.Preset, Service: p.Service, Queue: p.Queue,
		Exchanges: []admin.Exchange{}, Queues: []admin.Queue{}, Bindings: []admin.Route{}, Waits: []admin.Wait{},
	}
	for _, x := range p.Exchanges {
		t.Exchanges = append(t.Exchanges, admin.Exchange{Name: x.Name, Type: x.Type, Shared: x.Shared})
	}
	for i := range p.Queues {
		q := &p.Queues[i]
		t.Queues = append(t.Queues, admin.Queue{Name: q.Name, Kind: string(q.Kind), Shared: q.Shared})
	}
	for _, b := range p.Bindings {
		t.Bindings = append(t.Bindings, admin.Route{Exchange: b.Exchange, Key: b.Key, Queue: b.Queue})
	}
	for _, w := range p.Waits {
		t.Waits = append(t.Waits, admin.Wait{Route: admin.Route(w.Route), Delay: w.Delay.String()})
	}
	if p.Park.Queue != "" {
		park, redrive := admin.Route(p.Park), admin.Route(p.Redrive)
		t.Park, t.Redrive = &park, &redrive
	}
	return t
}

// measureEvery is the least time between two measurements of the queues' depths for a client of the flow.
const measureEvery = 2 * time.Second

// Flow returns the counters of the moment, and asks for new depths of the queues for the next call.
func (a *App) Flow() admin.Flow {
	measure := time.Since(a.measured) >= measureEvery
	if measure {
		a.measured = time.Now()
	}
	settled := a.settledByQueue()
	f := admin.Flow{Totals: totals(a.subscriptions, settled), Depths: []admin.Depth{}}
	for i, name := range a.Subscriptions() {
		if i == 0 {
			f.Subscriptions = map[string]admin.Totals{}
		}
		f.Subscriptions[name] = totals(a.of(name), settled)
	}
	for _, sub := range a.subscriptions {
		if measure {
			select {
			case sub.measure <- struct{}{}:
			default:
			}
		}
	}
	for _, d := range a.depths.All() {
		f.Depths = append(f.Depths, admin.Depth{Queue: d.Queue, Kind: string(d.Kind), Ready: d.Ready})
	}
	return f
}

// totals sums over the queues of some subscriptions.
func totals(subs []*subscription, settled map[string]map[string]uint64) admin.Totals {
	t := admin.Totals{Received: received(subs), Settled: map[string]uint64{}}
	for action := range message.Actions {
		t.Settled[message.Action(action).String()] = 0 // #nosec G115 -- a few
	}
	for _, s := range subs {
		for outcome, n := range settled[s.plan.Queue] {
			t.Settled[outcome] += n
		}
	}
	return t
}

// received returns how many messages were delivered to some subscriptions.
func received(subs []*subscription) (n uint64) {
	for _, s := range subs {
		n += uint64(s.consumer.Received()) // #nosec G115 -- counts up
	}
	return n
}

// settledByQueue returns the settled messages by queue and outcome, summed over the reasons of the metric.
func (a *App) settledByQueue() map[string]map[string]uint64 {
	families, err := a.registry.Gather()
	if err != nil {
		a.log.Debug("metrics not gathered", "error", err) // the rest is in families
	}
	sums := map[string]map[string]uint64{}
	for _, f := range families {
		if f.GetName() != "sidecar_messages_settled_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			queue := labels["queue"]
			if sums[queue] == nil {
				sums[queue] = map[string]uint64{}
			}
			sums[queue][labels["outcome"]] += uint64(m.GetCounter().GetValue())
		}
	}
	return sums
}
