//go:build kubernetes

package kubernetes

import (
	"fmt"
	"testing"
)

// A changed configuration rolls the pods.
func TestUpgradeOfConfiguration(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.install()
	before := s.waitReady(s.ofRelease())
	s.ledger.waitHandled(t, s.publish(order{})...)

	s.upgrade("--set", "flow.concurrency=3")
	after := s.waitPod(s.ofRelease(), "is of the new configuration", func(p pod) bool {
		return p.ready() && p.Metadata.Name != before.Metadata.Name
	})
	s.ledger.waitHandled(t, s.publish(order{})...)
	config := s.kubectl("exec", after.Metadata.Name, "-c", "sidecar", "--", "/sidecar", "config")
	if !hasLine(config, "SIDECAR_CONCURRENCY", "3") {
		t.Errorf("the sidecar's configuration is\n%s", config)
	}
}

// A Secret that changes is read again without a restart.
func TestSecretRotation(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	first, second := s.newForwarder(), s.newForwarder()
	first.open()
	s.secret("broker", first.url)
	s.install()
	before := s.waitReady(s.ofRelease())
	s.ledger.waitHandled(t, s.publish(order{})...)

	second.open()
	s.secret("broker", second.url)
	first.Refuse()
	s.ledger.waitHandled(t, s.publish(order{})...)
	s.stayed(before, "sidecar")
	if second.Accepted() == 0 {
		t.Error("the sidecar did not come by the new address")
	}
}

// A Job with a native sidecar ends when the app ends, and the sidecar with it.
func TestJob(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.install(append(s.collectorValue(), "--set", "workload.kind=Job", "--set", "flow.concurrency=1", "--set", "flow.prefetch=1")...)
	ids := s.publish(order{Work: "200ms"}, order{}, order{}, order{Then: "finish"})

	eventually(t, "complete job", func() error {
		if n := s.kubectl("get", "job", "-l", s.ofRelease(), "-o", "jsonpath={.items[*].status.succeeded}"); n != "1" {
			return fmt.Errorf("pods that succeeded: %q", n)
		}
		return nil
	})
	s.ledger.exactlyOnce(t, ids...)
	for _, p := range s.pods(s.ofRelease()) {
		for _, name := range []string{"sidecar", "app"} {
			if e := p.container(name).State.Terminated; e == nil || e.ExitCode != 0 {
				t.Errorf("container %s of pod %s has ended with %+v", name, p.Metadata.Name, e)
			}
		}
	}
	s.broker.empty(queueOf(s.service), dlqOf(s.service))
}
