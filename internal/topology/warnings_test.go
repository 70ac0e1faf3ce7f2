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
		{"no hyphen", build(t, Options{Service: "cincout", QueueType: "quorum"}), []string{"default.main-exchange is shared by all services without a hyphen"}},
		{"no hyphen, own prefix", build(t, Options{Service: "cincout", Prefix: "wms", QueueType: "quorum"}), nil},
		{"a family called default", build(t, Options{Service: "default-x", QueueType: "quorum"}), nil},
		{"shared way back", shapes["topic-tiers"], []string{"classic queue", "retries come back through exchange freeflow.events"}},
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
