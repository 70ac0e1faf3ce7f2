package declare

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// definitions are what a broker imports.
type definitions struct {
	Exchanges []json.RawMessage `json:"exchanges"`
	Queues    []json.RawMessage `json:"queues"`
	Bindings  []json.RawMessage `json:"bindings"`
}

// TestDefinitions: what is imported is what would have been declared. All of it goes in one file.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	plans := variants(t)
	all := definitions{}
	for _, p := range plans {
		b := must.Get(p.Definitions(brokertest.VhostName(t)))(t)
		var d definitions
		must.Do(t, json.Unmarshal(b, &d))
		all.Exchanges, all.Queues = append(all.Exchanges, d.Exchanges...), append(all.Queues, d.Queues...)
		all.Bindings = append(all.Bindings, d.Bindings...)
	}
	b := must.Get(json.Marshal(all))(t)
	brokertest.Eval(t, fmt.Sprintf(`rabbit_definitions:import_raw(base64:decode("%s"))`, base64.StdEncoding.EncodeToString(b)))
	for name, p := range plans {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fits(t, url, p, topology.ModeVerify)
			travels(t, url, p)
			fits(t, url, p, topology.ModeDeclare)
		})
	}
}
