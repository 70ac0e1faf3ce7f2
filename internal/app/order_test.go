package app

import (
	"testing"

	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// TestOrderBy: a failed message is tried again in its place, in a queue with a single active consumer; order within each
// replica needs none.
func TestOrderBy(t *testing.T) {
	t.Parallel()
	for scope, single := range map[string]any{"cluster": true, "replica": nil} {
		p := must.Get(newPlan(load(t, "SIDECAR_ORDER_BY=routing-key", "SIDECAR_ORDER_SCOPE="+scope)))(t)
		if q := p.OwnQueue(); !p.InPlace || p.SingleActive != (single != nil) || q.Args[topology.ArgSingleConsumer] != single {
			t.Errorf("%s: in place %v, single active %v, arguments %v", scope, p.InPlace, p.SingleActive, q.Args)
		}
	}
}

// TestOrderWithAPlanFile: the queue of the file must have a single active consumer, too.
func TestOrderWithAPlanFile(t *testing.T) {
	t.Parallel()
	file := planFile(t, load(t), nil)
	refused(t, "SIDECAR_ORDER_BY needs x-single-active-consumer=true", "SIDECAR_PLAN_FILE", file, "SIDECAR_ORDER_BY=queue")
	load(t, file, "SIDECAR_ORDER_BY=queue", "SIDECAR_ORDER_SCOPE=replica")
}
