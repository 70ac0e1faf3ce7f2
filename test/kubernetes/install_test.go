//go:build kubernetes

package kubernetes

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Two values are a complete installation, with either Helm.
func TestInstallUpgradeTestUninstall(t *testing.T) {
	for name, helm := range map[string]string{"helm3": env.helm3, "helm4": env.helm4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			begin := time.Now()
			s.helmOf(helm, s.release("install")...)
			installed := time.Since(begin)
			first := s.waitReady(s.ofRelease())
			ready := time.Since(begin)
			s.ledger.waitHandled(t, s.publish(order{})...)
			t.Logf("helm install %s, pod ready %s, message handled %s", installed, ready, time.Since(begin))

			if said := s.helmOf(helm, "test", s.service, "--logs"); !strings.Contains(said, "Succeeded") {
				t.Errorf("no test of the chart succeeded: %s", said)
			}

			s.helmOf(helm, s.release("upgrade", "--set", "podAnnotations.changed=yes")...)
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
			s.broker.empty(queueOf(s.service), dlqOf(s.service))
		})
	}
}

// Where the strictest of Kubernetes' own pod security standards is enforced, the sidecar's part of the pod is taken as
// it is.
func TestRestrictedNamespace(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.kubectl("label", "namespace", s.namespace, "pod-security.kubernetes.io/enforce=restricted")
	s.install("--set-json", `app.securityContext={"runAsNonRoot":true,"runAsUser":65532,"allowPrivilegeEscalation":false,`+
		`"capabilities":{"drop":["ALL"]},"seccompProfile":{"type":"RuntimeDefault"}}`, "--set", "dispatch.crashLimit=3")
	s.waitReady(s.ofRelease())
	s.ledger.waitHandled(t, s.publish(order{})...)
}
