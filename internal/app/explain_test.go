package app

import (
	"strings"
	"testing"

	"sidecar/internal/config"
	"sidecar/internal/topology"
)

// TestRetriesOfEachMode: what explain, plan and its picture say of a retry is what the sidecar does in that mode.
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
		cfg := load(t, "SIDECAR_TOPOLOGY_MODE="+mode)
		explained, err := Explain(cfg, Question{Status: 503, RetryAfter: -1})
		if err != nil {
			t.Fatal(err)
		}
		planned, drawn := rendered(t, "text", "SIDECAR_TOPOLOGY_MODE="+mode), rendered(t, "mermaid", "SIDECAR_TOPOLOGY_MODE="+mode)
		_, way, _ := strings.Cut(planned, "WHAT HAPPENS")
		if !strings.Contains(explained.Text(plain), row.explained) || !strings.Contains(way, row.planned) || !strings.Contains(drawn, row.drawn) {
			t.Errorf("%s:\n%s%s%s", mode, explained.Text(plain), way, drawn)
		}
		for _, word := range row.never {
			if strings.Contains(explained.Text(plain), word) || strings.Contains(way, word) || strings.Contains(drawn, "failed: "+word) {
				t.Errorf("%s speaks of %q:\n%s%s", mode, word, explained.Text(plain), way)
			}
		}
	}
}

// TestRetriesOfAQueueThatDelays: in every mode explain, plan and its picture say how long a message waits in its queue.
func TestRetriesOfAQueueThatDelays(t *testing.T) {
	t.Parallel()
	for delays, want := range map[string]string{"": "5s", "SIDECAR_RETRY_DELAYS=2s,1m": "2s, and as much longer each time, up to 1m"} {
		for _, mode := range []string{"declare", "verify", "none"} {
			env := append(strings.Fields(delays), "SIDECAR_TOPOLOGY=native", "SIDECAR_TOPOLOGY_MODE="+mode)
			cfg := load(t, env...)
			for question, line := range map[*Question]string{
				{Status: 503, RetryAfter: -1}: "rejected with requeue: " + newPlanOf(t, cfg).Queue + " delays it " + want,
				{Status: 425, RetryAfter: -1}: "requeued",
			} {
				if explained, err := Explain(cfg, *question); err != nil || !strings.Contains(explained.Text(plain), line) {
					t.Errorf("%s, %s: %v\n%s", mode, line, err, explained.Text(plain))
				}
			}
			planned, drawn := rendered(t, "text", env...), rendered(t, "mermaid", env...)
			if !strings.Contains(planned, "a failure waits "+want) || !strings.Contains(drawn, `"failed: reject, wait `+want+`"`) {
				t.Errorf("%s:\n%s%s", mode, planned, drawn)
			}
		}
	}
}

func newPlanOf(t *testing.T, cfg *config.Config) *topology.Plan {
	t.Helper()
	p, err := newPlan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestBatchesAreExplained: explain says what an answer means for several messages, where there can be several.
func TestBatchesAreExplained(t *testing.T) {
	t.Parallel()
	const line = "as the answer to several messages (up to 50 in one POST): "
	cfg := load(t, "SIDECAR_BATCH_SIZE=50", "SIDECAR_PARK_ON_STATUS=422", "SIDECAR_MAX_RETRIES=3", "SIDECAR_ROUTES=a=/a",
		"SIDECAR_ROUTES_ELSE=park")
	for want, questions := range map[string][]Question{
		line + "the same for each of them": {{Status: 204}, {Status: 425}, {Failure: "refused"}, {Status: 500, Disposition: "ack"}},
		line + "they are POSTed again at once, each alone": {
			{Status: 500}, {Status: 422}, {Failure: "timeout"}, {Status: 500, RetryCount: 3}, {Status: 200, Disposition: "park"},
		},
		"": {{Failure: "too_large"}, {Status: 200, RoutingKey: "b"}},
	} {
		for _, q := range questions {
			q.RetryAfter = -1
			e, err := Explain(cfg, q)
			if err != nil {
				t.Fatal(err)
			}
			if text := e.Text(plain); !strings.Contains(text, want) || strings.Contains(text, line) != (want != "") {
				t.Errorf("%+v:\n%s", q, text)
			}
		}
	}
}

// TestDiscardsAreExplained: only an app that asked for it had its message discarded; other messages had no dead-letter
// queue to be parked in.
func TestDiscardsAreExplained(t *testing.T) {
	t.Parallel()
	const asked, noQueue = "the app asked for it: the message is gone", "there is no dead-letter queue: the message is dropped"
	cfg := load(t, "SIDECAR_TOPOLOGY=dead-letter", "SIDECAR_QUEUE=q", "SIDECAR_BINDINGS=a:b", "SIDECAR_DEAD_LETTER=disabled",
		"SIDECAR_PARK_ON_STATUS=413")
	for want, questions := range map[string][]Question{
		asked:   {{Status: 500, Disposition: "discard"}},
		noQueue: {{Status: 413}, {Failure: "too_large"}, {Status: 500, Disposition: "park"}},
	} {
		for _, q := range questions {
			q.RetryAfter = -1
			explained, err := Explain(cfg, q)
			if err != nil || !strings.Contains(explained.Text(plain), want) || strings.Contains(explained.Text(plain), asked) != (want == asked) {
				t.Errorf("%+v: %v\n%s", q, err, explained.Text(plain))
			}
		}
	}
}

// TestAnswersToAllAreExplained: explain says for which answers consumption pauses.
func TestAnswersToAllAreExplained(t *testing.T) {
	t.Parallel()
	cfg := load(t, "SIDECAR_PARK_ON_STATUS=307,413")
	for want, questions := range map[string][]Question{
		"as the answer to 10 messages in a row":     {{Status: 404}, {Status: 301}, {Status: 308, RetryCount: 10}},
		"as the answer to the first 10 messages of": {{Status: 400}, {Status: 422}},
		"": {{Status: 200}, {Status: 307}, {Status: 413}, {Status: 409}, {Status: 503}, {Failure: "timeout"}, {Status: 404, Disposition: "park"}},
	} {
		for _, q := range questions {
			q.RetryAfter = -1
			e, err := Explain(cfg, q)
			if err != nil {
				t.Fatal(err)
			}
			if text := e.Text(plain); !strings.Contains(text, want) || strings.Contains(text, "(app_rejects_all)") != (want != "") {
				t.Errorf("%+v:\n%s", q, text)
			}
		}
	}
}

// TestPlanKeepsTheTopologyOfEachMode: the imported plan is the same in each mode.
func TestPlanKeepsTheTopologyOfEachMode(t *testing.T) {
	t.Parallel()
	want := rendered(t, "definitions", "SIDECAR_SERVICE=wms-cincout")
	for _, mode := range []topology.Mode{topology.ModeVerify, topology.ModeNone} {
		if got := rendered(t, "definitions", "SIDECAR_SERVICE=wms-cincout", "SIDECAR_TOPOLOGY_MODE="+string(mode)); got != want {
			t.Errorf("%s:\n%s", mode, got)
		}
	}
}

// plain is for output without colours.
func plain(word string) string { return word }

// TestExplainWithoutRoutes: a subscription without routes POSTs everything, also where messages of others without a route
// are acked.
func TestExplainWithoutRoutes(t *testing.T) {
	t.Parallel()
	cfg := load(t, "SIDECAR_SUBSCRIPTIONS=x,y", "SIDECAR_SUB_X_ROUTES=a=/a", "SIDECAR_ROUTES_ELSE=ack")
	e, err := Explain(cfg.Subscriptions[1], Question{RoutingKey: "b", Status: 200, RetryAfter: -1})
	if text := e.Text(func(s string) string { return s }); err != nil || !strings.Contains(text, "POST to http://127.0.0.1:8080/") {
		t.Errorf("%v: %s", err, text)
	}
}
