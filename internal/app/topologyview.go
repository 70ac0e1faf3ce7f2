package app

import (
	"time"

	"sidecar/internal/admin"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

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
	for i, d := range p.Delays() {
		w := p.Waits[min(i, len(p.Waits)-1)] // of a queue that delays messages itself both delays are its own
		t.Waits = append(t.Waits, admin.Wait{Route: admin.Route(w.Route), Delay: d.String()})
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
	f := admin.Flow{
		Totals: admin.Totals{Received: received(a.subscriptions), Settled: a.settledByOutcome()}, Depths: []admin.Depth{},
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
