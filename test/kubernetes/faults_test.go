//go:build kubernetes

package kubernetes

import (
	"slices"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// The sidecar's process is killed: the app stays, and what was in flight comes again.
func TestKillOfSidecar(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.install(s.collectorValue()...)
	before := s.waitReady()
	stop := s.load(50*time.Millisecond, order{Work: "100ms"})
	inHand := s.publish(order{Work: "20s"})
	s.waitBegun(inHand...)

	s.killContainer(before, "sidecar")
	s.waitPod("has its sidecar again", func(p pod) bool {
		return p.ready() && p.container("sidecar").RestartCount == 1
	})
	after := s.publish(order{})
	ids := slices.Concat(stop(), inHand, after)

	s.ledger.waitHandled(t, ids...)
	s.stayed(before, "app")
	if boots := s.ledger.all("boot"); len(boots) != 1 {
		t.Errorf("the app started %d times", len(boots))
	}
	if n := s.ledger.count("begin")[inHand[0]]; n != 2 {
		t.Errorf("the message in flight came %d times", n)
	}
	s.empty(dlqOf(s.service), queueOf(s.service))
}

// A message over which the app runs out of memory is parked after its retries; all others are handled.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.install(append(s.collectorValue(), "--set", "app.resources.limits.memory=64Mi", "--set", "topology.maxRetries=1",
		"--set", "flow.concurrency=2")...)
	s.waitReady()
	before := s.publish(make([]order, 10)...)
	poison := s.publish(order{Then: "oom"})
	after := s.publish(make([]order, 10)...)

	parked := brokertest.Get(t, env.amqp, dlqOf(s.service), patience)
	s.ledger.waitHandled(t, append(before, after...)...)
	if parked.MessageId != poison[0] || parked.Headers["x-final-reason"] != "max_retries" {
		t.Errorf("message %s is parked with the reason %v; the poison is %s", parked.MessageId, parked.Headers["x-final-reason"], poison[0])
	}
	p := s.waitReady()
	if app := p.container("app"); app.RestartCount == 0 || app.LastState.Terminated == nil || app.LastState.Terminated.Reason != "OOMKilled" {
		t.Errorf("the app was restarted %d times, the last time after %+v", app.RestartCount, app.LastState.Terminated)
	}
	if n := p.container("sidecar").RestartCount; n != 0 {
		t.Errorf("the sidecar was restarted %d times", n)
	}
	s.empty(queueOf(s.service), dlqOf(s.service))
}

// The app's own liveness probe fails: only the app is restarted, and its preStop hook does not wait for a drain that has
// not begun.
func TestLivenessOfApp(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.install(append(s.collectorValue(), "--set-json",
		`app.livenessProbe={"httpGet":{"path":"/healthz","port":8080},"periodSeconds":1,"failureThreshold":2}`)...)
	before := s.waitReady()
	s.ledger.waitHandled(t, s.publish(order{Then: "sick"})...)

	s.waitPod("has restarted its app", func(p pod) bool {
		return p.ready() && p.container("app").RestartCount == 1
	})
	s.ledger.waitHandled(t, s.publish(order{})...)
	s.stayed(before, "sidecar")
	terms := s.ledger.all("sigterm")
	if len(terms) != 1 || terms[0].Sidecar != "consuming" {
		t.Errorf("SIGTERM for the app: %+v; the sidecar should have been consuming", terms)
	}
	s.empty(dlqOf(s.service))
}

// A broker that is away does not keep the pod from being ready and the app from being served.
func TestBrokerAway(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	link := s.newForwarder()
	s.secret("broker", link.url)
	s.install()
	p := s.waitReady()
	s.kubectl("get", "--raw", s.proxyPath(p, "8080", "/healthz"))
	if out, err := s.tryKubectl("", "get", "--raw", s.proxyPath(p, "9090", "/readyz")); err == nil {
		t.Errorf("the sidecar says that it is ready: %s", out)
	}

	link.open()
	s.ledger.waitHandled(t, s.publish(order{})...)
	s.stayed(p, "sidecar")
}

// proxyPath is the path below which the API server passes requests on to a port of a pod.
func (s *scene) proxyPath(p pod, port, path string) string {
	return "/api/v1/namespaces/" + s.namespace + "/pods/" + p.Metadata.Name + ":" + port + "/proxy" + path
}
