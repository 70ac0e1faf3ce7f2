package app

import (
	"time"

	"sidecar/internal/admin"
	"sidecar/internal/message"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// topologyView returns the plan of a subscription in the form of the control listener.
func topologyView(subscription string, p *topology.Plan) admin.Topology {
	t := admin.Topology{
		Subscription: subscription, Preset: p.Preset, Service: p.Service, Queue: p.Queue,
		Exchanges: append([]topology.Exchange{}, p.Exchanges...), Queues: append([]topology.Queue{}, p.Queues...),
		Bindings: append([]topology.Binding{}, p.Bindings...), Waits: []admin.Wait{},
	}
	for i, d := range p.Delays() {
		w := p.Waits[min(i, len(p.Waits)-1)] // of a queue that delays messages itself both delays are its own
		t.Waits = append(t.Waits, admin.Wait{Route: w.Route, Delay: d.String()})
	}
	if p.Park.Queue != "" {
		t.Park, t.Redrive = p.Park, p.Redrive
	}
	return t
}

// measureEvery is the least time between two measurements of the queues' depths for a client of the flow.
const measureEvery = 2 * time.Second

// Flow returns the counters of the moment, and asks for new depths of the queues for the next call.
func (a *App) Flow() admin.Flow {
	if time.Since(a.measured) >= measureEvery {
		a.measured = time.Now()
		for _, sub := range a.subscriptions {
			ask(sub.measure)
		}
	}
	return admin.Flow{
		Totals: admin.Totals{Received: received(a.subscriptions), Settled: a.settledByOutcome()}, Depths: a.depths.All(),
	}
}

// lastDepths are the last measured depths, in the order of the subscriptions and of their plans.
func (a *App) lastDepths() (all []declare.Depth) {
	for _, sub := range a.subscriptions {
		if depths := sub.measured.Load(); depths != nil {
			all = append(all, *depths...)
		}
	}
	return all
}

// received returns how many messages were delivered to some subscriptions.
func received(subs []*subscription) (n uint64) {
	for _, s := range subs {
		n += uint64(s.consumer.Received()) // #nosec G115 -- counts up
	}
	return n
}

// settledByOutcome returns the settled messages by outcome, summed over the reasons of the metric.
func (a *App) settledByOutcome() map[string]uint64 {
	sums := map[string]uint64{}
	for action := range message.Actions {
		sums[message.Action(action).String()] = 0 // #nosec G115 -- a few
	}
	families, err := a.registry.Gather()
	if err != nil {
		a.log.Debug("metrics not gathered", "error", err) // the rest is in families
	}
	for _, f := range families {
		if f.GetName() != "sidecar_messages_settled_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "outcome" {
					sums[l.GetValue()] += uint64(m.GetCounter().GetValue())
				}
			}
		}
	}
	return sums
}
