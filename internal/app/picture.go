package app

import (
	"time"

	"sidecar/internal/admin"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// picture is the plan as the control listener shows it.
func picture(p *topology.Plan) admin.Topology {
	t := admin.Topology{
		Preset: p.Preset, Service: p.Service, Queue: p.Queue,
		Exchanges: []admin.Exchange{}, Queues: []admin.Queue{}, Bindings: []admin.Binding{}, Waits: []admin.Wait{},
	}
	for _, x := range p.Exchanges {
		t.Exchanges = append(t.Exchanges, admin.Exchange{Name: x.Name, Type: x.Type, Shared: x.Shared})
	}
	for i := range p.Queues {
		q := &p.Queues[i]
		t.Queues = append(t.Queues, admin.Queue{Name: q.Name, Kind: string(q.Kind), Shared: q.Shared})
	}
	for _, b := range p.Bindings {
		t.Bindings = append(t.Bindings, admin.Binding{Exchange: b.Exchange, Key: b.Key, Queue: b.Queue})
	}
	for _, w := range p.Waits {
		t.Waits = append(t.Waits, admin.Wait{Queue: w.Queue, Delay: w.Delay.String(), Exchange: w.Exchange, Key: w.Key})
	}
	if p.Park.Queue != "" {
		park, redrive := admin.Route(p.Park), admin.Route(p.Redrive)
		t.Park, t.Redrive = &park, &redrive
	}
	return t
}

// askEvery is how often the depths of the queues are measured while somebody watches them.
const askEvery = 2 * time.Second

// Flow is asked for while somebody listens, who then wants to see depths that are newer than those of the metrics.
func (s state) Flow() admin.Flow {
	a := s.a
	if now := int64(time.Since(a.started)); now-a.asked.Load() >= int64(askEvery) {
		a.asked.Store(now)
		select {
		case a.measure <- struct{}{}:
		default:
		}
	}
	f := admin.Flow{Received: uint64(a.consumer.Received()), Settled: a.settled()} // #nosec G115 -- counts up
	for _, d := range a.watcher.Depths() {
		f.Depths = append(f.Depths, admin.Depth{Queue: d.Queue, Kind: string(d.Kind), Ready: d.Ready})
	}
	return f
}

// settled reads the counters from the registry, where they are kept by reason as well.
func (a *App) settled() map[string]uint64 {
	sums := map[string]uint64{}
	for action := range message.Actions {
		sums[message.Action(action).String()] = 0 // #nosec G115 -- a handful
	}
	families, err := a.registry.Gather()
	if err != nil {
		a.log.Debug("metrics not gathered", "error", err) // what could be gathered is there
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
