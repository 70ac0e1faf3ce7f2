package config

import (
	"errors"
	"slices"
	"testing"
)

// TestRule: a problem that the rule reports is listed among the others, unless it may follow from one of them.
func TestRule(t *testing.T) {
	t.Parallel()
	rule := func(c *Config, _ []*Config, reject func([]string, ...string)) {
		if c.Window.Concurrency != 3 || c.Process.LogFormat != "json" {
			t.Errorf("the rule sees %+v", c)
		}
		reject([]string{"SIDECAR_QUEUE", "SIDECAR_TOPOLOGY"}, "a consequence of the first problem")
		reject([]string{"SIDECAR_QUEUE", "SIDECAR_DLX"}, "news, at 100 %", "and more of it")
		reject([]string{"SIDECAR_DLQ", "SIDECAR_QUEUE"}, "a consequence of the news")
		reject([]string{"SIDECAR_LOG_FORMAT"}, "more news")
	}
	_, err := Load([]string{"SIDECAR_SERVICE=a-b", "SIDECAR_TOPOLOGY=ring", "SIDECAR_LOG_LEVEL=loud", "SIDECAR_CONCURRENCY=3", "SIDECAR_QUEUE=q", "SIDECAR_X=1"}, 0, rule)
	problems, ok := errors.AsType[*Errors](err)
	if !ok {
		t.Fatal(err)
	}
	var got []string
	for _, p := range problems.Problems {
		got = append(got, p.Variable)
	}
	if want := []string{"SIDECAR_TOPOLOGY", "SIDECAR_QUEUE", "SIDECAR_QUEUE", "SIDECAR_LOG_LEVEL", "SIDECAR_LOG_FORMAT", "SIDECAR_X"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if p := problems.Problems[1]; p.Value != `"q"` || p.Reason != "news, at 100 %" || p.Allowed == "" {
		t.Errorf("%+v", p)
	}
}
