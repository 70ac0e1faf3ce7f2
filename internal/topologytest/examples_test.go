package topologytest

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// examplePlan reads a plan file of the examples, and shortens its delays: waiting for minutes proves nothing more.
func examplePlan(t *testing.T, path string) *topology.Plan {
	t.Helper()
	p := must.Get(topology.ParsePlan(must.Get(os.ReadFile(path))(t), "example", 0))(t)
	for i := range p.Waits {
		w := &p.Waits[i]
		w.Delay = tiers[i]
		for j := range p.Queues {
			if q := &p.Queues[j]; q.Name == w.Queue {
				q.Args = maps.Clone(q.Args)
				q.Args[topology.ArgTTL] = w.Delay.Milliseconds()
			}
		}
	}
	return p
}

// TestExamplePlans: a plan from a file, which no preset builds, needs no line of code anywhere.
func TestExamplePlans(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../examples/topologies/*/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			t.Parallel()
			Exercise(t, examplePlan(t, file), checksOf(file))
		})
	}
}

// TestReturnByAnExchange: a plan whose messages are rejected into the retry queue, and return by a named exchange.
func TestReturnByAnExchange(t *testing.T) {
	t.Parallel()
	four := 4
	plan := build(t, topology.Options{RetryDelay: brief, MaxRetries: &four})
	plan.StampQueue = true
	for i := range plan.Queues {
		if q := &plan.Queues[i]; q.Name == waitQueue {
			q.Args = with(q.Args, topology.ArgDLX, retryExchange, topology.ArgDLKey, "back")
		}
	}
	plan.Bindings = append(plan.Bindings, topology.Binding{Exchange: retryExchange, Key: "back", Queue: ownQueue})
	Exercise(t, plan, checksOf("return by an exchange"))
}
