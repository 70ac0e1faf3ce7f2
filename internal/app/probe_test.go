package app

import (
	"context"
	"errors"
	"testing"
	"time"

	"sidecar/internal/config"
	"sidecar/internal/dispatch"
	"sidecar/internal/testkit/must"
)

// TestOneProbeForEachApp: subscriptions whose app is the same, whatever their paths, share a probe. It asks once while
// its answer is fresh, and an interrupted question is no answer.
func TestOneProbeForEachApp(t *testing.T) {
	t.Parallel()
	all := probes{}
	asked := 0
	away := errors.New("away")
	ask := func(context.Context) error { asked++; return away }
	of := func(url, path string) *probe {
		target := must.Get(dispatch.New(dispatch.Options{URL: url}))(t)
		return all.of(&config.App{URL: url, HealthPath: path, HealthInterval: time.Hour}, target.Origin(), ask)
	}
	p := of("http://127.0.0.1:8080/orders", "")
	if of("http://127.0.0.1:8080/refunds?x=1", "") != p {
		t.Error("two paths of one app have two probes")
	}
	for _, other := range []*probe{
		of("http://127.0.0.1:8081/orders", ""), of("https://127.0.0.1:8080/orders", ""),
		of("http://127.0.0.1:8080/orders", "/health"), of("unix:///run/a.sock:/orders", ""),
	} {
		if other == p {
			t.Error("two apps share a probe")
		}
	}
	if of("unix:///run/a.sock:/orders", "") != of("unix:///run/a.sock:/refunds", "") {
		t.Error("two paths of one socket have two probes")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := p.run(ended); !errors.Is(err, away) || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	for range 3 {
		if err := p.run(t.Context()); !errors.Is(err, away) {
			t.Error(err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}
