//go:build kubernetes

package kubernetes

import (
	"fmt"
	"strings"
	"testing"
)

// Two values are a complete installation, with either Helm.
func TestInstallUpgradeTestUninstall(t *testing.T) {
	for name, helm := range map[string]string{"helm3": env.helm3, "helm4": env.helm4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			two := []string{s.service, chart(), "--set", "app.image=" + env.app, "--set", "broker.existingSecret=broker"}
			s.helmOf(helm, append([]string{"install"}, two...)...)
			first := s.waitReady(s.ofRelease())
			s.ledger.waitHandled(t, s.publish(order{})...)

			if said := s.helmOf(helm, "test", s.service, "--logs"); !strings.Contains(said, "Succeeded") {
				t.Errorf("no test of the chart succeeded: %s", said)
			}

			s.helmOf(helm, append([]string{"upgrade", "--set", "podAnnotations.changed=yes"}, two...)...)
			s.waitPod(s.ofRelease(), "is of the new release", func(p pod) bool {
				return p.ready() && p.Metadata.Name != first.Metadata.Name && p.Metadata.Annotations["changed"] == "yes"
			})
			s.ledger.waitHandled(t, s.publish(order{})...)

			s.helmOf(helm, "uninstall", s.service, "--wait")
			eventually(t, "namespace without the release", func() error {
				left := s.kubectl("get", "all,secrets,configmaps,serviceaccounts", "-l", s.ofRelease(), "-o", "name")
				if left != "" {
					return fmt.Errorf("there is still %s", strings.Fields(left))
				}
				return nil
			})
			s.broker.empty(queueOf(s.service))
			s.broker.empty(dlqOf(s.service))
		})
	}
}
