package topology

import (
	"strings"
	"testing"
)

func TestWarnings(t *testing.T) {
	t.Parallel()
	shapes := otherShapes(t)
	for _, c := range []struct {
		name string
		p    *Plan
		want []string
	}{
		{"quorum", build(t, Options{Service: "wms-cincout", QueueType: "quorum"}), nil},
		{"classic", build(t, Options{Service: "wms-cincout"}), []string{"classic queue"}},
		{"shared way back", shapes["topic-tiers"], []string{"classic queue", "retries return through exchange freeflow.events"}},
		{"a queue of its own behind a shared fanout", build(t, Options{Preset: PresetTopicTiers, Service: "x-y", DLQ: "y.dlq", QueueType: "quorum"}),
			[]string{"retries return", "x.events.dlx copies what any service parks"}},
		{"messages expire", shapes["dead-letter disabled"], []string{"classic queue", `queue "orders": x-message-ttl: messages leave the queue after 300000 ms`, "SIDECAR_DEAD_LETTER: a message that has used up its retries is discarded"}},
		{"an exchange that nothing is bound to", build(t, Options{Service: "x-y", Exchange: "e", ExchangeType: "topic", QueueType: "quorum",
			Bindings: []Binding{{Exchange: "others", Key: "k"}}}),
			[]string{"SIDECAR_EXCHANGE_TYPE=topic is not used: SIDECAR_BINDINGS does not name exchange e", "SIDECAR_EXCHANGE=e is not used"}},
		{"an exchange that names others", build(t, Options{Preset: PresetDeadLetter, Service: "x-y", Queue: "q", Exchange: "e", QueueType: "quorum",
			Bindings: []Binding{{Exchange: "others", Key: "k"}}}), nil},
		{"the second main exchange", build(t, Options{Preset: PresetPerQueue, Service: "x-y", ExchangeType: "direct", QueueType: "quorum",
			Bindings: []Binding{{Exchange: "domain.commands", Key: "k"}}}), nil},
		{"no hyphen", build(t, Options{Service: "noprefix", QueueType: "quorum"}), []string{`SIDECAR_SERVICE: "noprefix" has no hyphen`}},
		{"no hyphen, and a prefix", build(t, Options{Service: "noprefix", Prefix: "p", QueueType: "quorum"}), nil},
		{"no hyphen, and an exchange", build(t, Options{Service: "noprefix", Exchange: "e", QueueType: "quorum"}), nil},
		{"no hyphen where nothing is named after the prefix", build(t, Options{Preset: PresetPerQueue, Service: "noprefix", QueueType: "quorum",
			Bindings: []Binding{{Exchange: "domain.events", Key: "k"}}}), nil},
		{"a prefix that is the default", build(t, Options{Service: "default-x", QueueType: "quorum"}), nil},
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
