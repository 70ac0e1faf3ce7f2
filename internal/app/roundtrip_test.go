package app

import (
	"net/http/httptest"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// TestRoundTripWaitsToPublish: messages can be consumed, and the other connection, which publishes, comes later.
func TestRoundTripWaitsToPublish(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	proxy := brokertest.NewProxy(t, url)
	proxy.Refuse()
	cfg := load(t, "SIDECAR_AMQP_URL="+proxy.URL(t, url))
	plan := must.Get(newPlan(cfg))(t)
	probe := probeApp{id: "round trip"}
	server := httptest.NewServer(&probe)
	defer server.Close()
	a := must.Get(New(roundTripConfig(cfg, plan, server.URL+"/"), Build{}, &apptest.Log{}))(t)
	dialing(func(o *broker.Options) { o.URLs = func() ([]string, error) { return []string{url}, nil } })(a)
	ended := make(chan error, 1)
	go func() { ended <- probe.travel(t.Context(), a) }()
	brokertest.Eventually(t, time.Minute, "messages are consumed", func() bool { return a.Ready("").Ready })
	proxy.Restore(t)
	if err := <-ended; err != nil || probe.posts.Load() != 2 {
		t.Errorf("POSTed %d times: %v", probe.posts.Load(), err)
	}
}
