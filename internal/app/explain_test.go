package app

import (
	"strings"
	"testing"

	"sidecar/internal/config"
	"sidecar/internal/testkit/must"
)

// plain is for output without colours.
func plain(word string) string { return word }

// explained is what explain says of a question.
func explained(t *testing.T, cfg *config.Config, q Question) string {
	t.Helper()
	q.RetryAfter = -1
	return must.Get(Explain(cfg, q))(t).Text(plain)
}

// explains demands that explain says the key of each question; marker is in what it says if, and only if, it is in the key.
func explains(t *testing.T, cfg *config.Config, marker string, all map[string][]Question) {
	t.Helper()
	for want, questions := range all {
		for _, q := range questions {
			text := explained(t, cfg, q)
			if !strings.Contains(text, want) || strings.Contains(text, marker) != strings.Contains(want, marker) {
				t.Errorf("%+v: want %q:\n%s", q, want, text)
			}
		}
	}
}

// TestRetriesOfEachMode: what explain, plan and its picture say of a retry is what the sidecar does in that mode. The
// imported plan is the same in each.
func TestRetriesOfEachMode(t *testing.T) {
	t.Parallel()
	const rejects, publishes = "rejected: waits 5s in ", "published to exchange "
	for mode, row := range map[string]struct {
		explained, planned, drawn string
		never                     []string
	}{
		"declare": {rejects, "reject", "failed: reject", []string{publishes}},
		"verify":  {publishes, "publish to ", "failed: publish, wait", []string{"reject"}},
		"none":    {publishes, "publish to ", "failed: publish, wait", []string{"reject"}},
	} {
		mode = "SIDECAR_TOPOLOGY_MODE=" + mode
		text, drawn := explained(t, load(t, mode), Question{Status: 503}), rendered(t, "mermaid", mode)
		_, way, _ := strings.Cut(rendered(t, "text", mode), "WHAT HAPPENS")
		if !strings.Contains(text, row.explained) || !strings.Contains(way, row.planned) || !strings.Contains(drawn, row.drawn) {
			t.Errorf("%s:\n%s%s%s", mode, text, way, drawn)
		}
		for _, word := range row.never {
			if strings.Contains(text, word) || strings.Contains(way, word) || strings.Contains(drawn, "failed: "+word) {
				t.Errorf("%s speaks of %q:\n%s%s", mode, word, text, way)
			}
		}
		if got := rendered(t, "definitions", mode); got != rendered(t, "definitions") {
			t.Errorf("%s:\n%s", mode, got)
		}
	}
}

// TestBatchesAreExplained: explain says what an answer means for several messages, where there can be several.
func TestBatchesAreExplained(t *testing.T) {
	t.Parallel()
	const line = "as the answer to several messages (up to 50 in one POST): "
	cfg := load(t, "SIDECAR_BATCH_SIZE=50", "SIDECAR_PARK_ON_STATUS=422", "SIDECAR_MAX_RETRIES=3", "SIDECAR_ROUTES=a=/a",
		"SIDECAR_ROUTES_ELSE=park")
	explains(t, cfg, line, map[string][]Question{
		line + "the same for each of them": {{Status: 204}, {Status: 425}, {Failure: "refused"}, {Status: 500, Disposition: "ack"}},
		line + "they are POSTed again at once, each alone": {
			{Status: 500}, {Status: 422}, {Failure: "timeout"}, {Status: 500, RetryCount: 3}, {Status: 200, Disposition: "park"},
		},
		"": {{Failure: "too_large"}, {Status: 200, RoutingKey: "b"}},
	})
}

// TestDiscardsAreExplained: only an app that asked for it had its message discarded; other messages had no dead-letter
// queue to be parked in.
func TestDiscardsAreExplained(t *testing.T) {
	t.Parallel()
	const asked, noQueue = "the app asked for it: the message is gone", "there is no dead-letter queue: the message is dropped"
	cfg := load(t, "SIDECAR_TOPOLOGY=dead-letter", "SIDECAR_QUEUE=q", "SIDECAR_BINDINGS=a:b", "SIDECAR_DEAD_LETTER=disabled",
		"SIDECAR_PARK_ON_STATUS=413")
	explains(t, cfg, asked, map[string][]Question{
		asked:   {{Status: 500, Disposition: "discard"}},
		noQueue: {{Status: 413}, {Failure: "too_large"}, {Status: 500, Disposition: "park"}},
	})
}

// TestAnswersToAllAreExplained: explain says for which answers consumption pauses.
func TestAnswersToAllAreExplained(t *testing.T) {
	t.Parallel()
	const row, first, reason = "as the answer to 10 messages in a row", "as the answer to the first 10 messages of", "(app_rejects_all)"
	cfg := load(t, "SIDECAR_PARK_ON_STATUS=307,413")
	for want, questions := range map[string][]Question{
		row:   {{Status: 404}, {Status: 301}, {Status: 308, RetryCount: 10}},
		first: {{Status: 400}, {Status: 422}},
		"":    {{Status: 200}, {Status: 307}, {Status: 413}, {Status: 409}, {Status: 503}, {Failure: "timeout"}, {Status: 404, Disposition: "park"}},
	} {
		for _, q := range questions {
			if text := explained(t, cfg, q); !strings.Contains(text, want) || strings.Contains(text, reason) != (want != "") {
				t.Errorf("%+v:\n%s", q, text)
			}
		}
	}
}

// TestUnusedRoutes: a route for routing keys needs a binding that may bring one.
func TestUnusedRoutes(t *testing.T) {
	t.Parallel()
	const routes = "SIDECAR_ROUTES=order.*=/a,orders.new=/b,type:x=/c,exchange:x=/d,orders.#.late=/e,#.old=/f,demo.retry=/g,demo.orders=/h,q.demo-orders=/i"
	const one, all = `"order.*=/a", "demo.retry=/g", "q.demo-orders=/i"`, `"order.*=/a", "orders.#.late=/e", "#.old=/f" and `
	for topology, want := range map[string]string{
		"SIDECAR_TOPOLOGY=fanout": "",
		"SIDECAR_TOPOLOGY=topic-tiers SIDECAR_BINDINGS=demo.events:orders.*,demo.events:orders.*.*": one + "; it is bound by demo.events:orders.*, demo.events:orders.*.*",
		"SIDECAR_TOPOLOGY=topic-tiers SIDECAR_BINDINGS=demo.events:orders.new":                      all + "2 more; it is bound by demo.events:orders.new",
		"SIDECAR_TOPOLOGY=per-queue SIDECAR_BINDINGS=demo.events:orders.new":                        all + "2 more; it is bound by demo.events:orders.new",
		"SIDECAR_TOPOLOGY=topic-tiers SIDECAR_BINDINGS=theirs:orders.new":                           all + "2 more; it is bound by theirs:orders.new",
		"SIDECAR_TOPOLOGY=topic-tiers SIDECAR_BINDINGS=theirs:,theirs:10":                           "", // may be a fanout exchange, or the weight of a hash
	} {
		cfg := load(t, append(strings.Fields(topology), routes)...)
		plan, err := newPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(unusedRoutes(cfg, plan), "\n"); want == "" && got != "" || !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q", topology, got)
		}
	}
}
