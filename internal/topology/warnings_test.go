package topology

import (
	"strings"
	"testing"
)

func TestWarnings(t *testing.T) {
	unverified := build(t, Options{Service: "wms-cincout", QueueType: "quorum"})
	unverified.Unverified = true
	shapes := otherShapes(t)
	for _, c := range []struct {
		name string
		p    *Plan
		want []string
	}{
		{"quorum", build(t, Options{Service: "wms-cincout", QueueType: "quorum"}), nil},
		{"classic", build(t, Options{Service: "wms-cincout"}), []string{"classic queue"}},
		{"shared way back", shapes["topic-tiers"], []string{"classic queue", "retries come back through exchange freeflow.events"}},
		{"a queue of its own behind a shared fanout", build(t, Options{Preset: PresetTopicTiers, Service: "x-y", DLQ: "y.dlq", QueueType: "quorum"}),
			[]string{"retries come back", "x.events.dlx copies what any service parks"}},
		{"messages expire", shapes["dead-letter disabled"], []string{"classic queue", "messages leave orders after 300000 ms"}},
		{"not looked at", unverified, []string{"SIDECAR_TOPOLOGY_MODE=none"}},
	} {
		got := c.p.Warnings()
		if len(got) != len(c.want) {
			t.Errorf("%s: %d warnings, want %d: %v", c.name, len(got), len(c.want), got)
			continue
		}
		for i, w := range c.want {
			if !strings.Contains(got[i], w) {
				t.Errorf("%s: %q does not hold %q", c.name, got[i], w)
			}
		}
	}
}
