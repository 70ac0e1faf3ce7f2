//go:build kubernetes

package kubernetes

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// Two values are a complete installation, with either Helm.
func TestInstallUpgradeTestUninstall(t *testing.T) {
	for name, helm := range map[string]string{"helm3": env.helm3, "helm4": env.helm4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.helmOf(helm, s.release("install")...)
			first := s.waitReady()
			s.ledger.waitHandled(t, s.publish(order{})...)

			if said := s.helmOf(helm, "test", s.service, "--logs"); !strings.Contains(said, "Succeeded") {
				t.Errorf("no test of the chart succeeded: %s", said)
			}

			s.helmOf(helm, s.release("upgrade", "--set", "flow.concurrency=3")...) // a changed configuration rolls the pods
			second := s.waitPod("is of the new release", func(p pod) bool {
				return p.ready() && p.Metadata.Name != first.Metadata.Name
			})
			s.ledger.waitHandled(t, s.publish(order{})...)
			config := s.kubectl("exec", second.Metadata.Name, "-c", "sidecar", "--", "/sidecar", "config")
			if !regexp.MustCompile(`(?m)^SIDECAR_CONCURRENCY +3 `).MatchString(config) {
				t.Errorf("the sidecar's configuration is\n%s", config)
			}

			s.helmOf(helm, "uninstall", s.service, "--wait")
			eventually(t, "namespace without the release", func() error {
				left := s.kubectl("get", "all,secrets,configmaps,serviceaccounts", "-l", s.ofRelease(), "-o", "name")
				if left != "" {
					return fmt.Errorf("there is still %s", strings.Fields(left))
				}
				return nil
			})
			s.empty(queueOf(s.service), dlqOf(s.service))
		})
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
	for _, p := range s.pods() {
		for _, name := range []string{"sidecar", "app"} {
			if e := p.container(name).State.Terminated; e == nil || e.ExitCode != 0 {
				t.Errorf("container %s of pod %s has ended with %+v", name, p.Metadata.Name, e)
			}
		}
	}
	s.empty(queueOf(s.service), dlqOf(s.service))
}
