package declare

import (
	"testing"

	"sidecar/internal/topology"
)

// build makes a plan that must be possible.
func build(t testing.TB, o topology.Options) *topology.Plan {
	t.Helper()
	p, err := topology.Build(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// queue is a queue of p by its name.
func queue(p *topology.Plan, name string) *topology.Queue {
	for i := range p.Queues {
		if p.Queues[i].Name == name {
			return &p.Queues[i]
		}
	}
	return nil
}
