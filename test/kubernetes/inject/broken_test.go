//go:build kubernetes

package inject

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// The tests of this file take a part of the installation away, or add to it. They are not parallel: nothing else runs meanwhile.

// TestNotInjected has no policy that injects.
func TestNotInjected(t *testing.T) {
	restore(t)
	must.Get(kubectl("", "delete", "mutatingadmissionpolicybinding", "amqp-sidecar-inject"))(t)
	refused(t, pod(usual, one), "no sidecar was injected: is the MutatingAdmissionPolicy amqp-sidecar-inject there")
	if _, err := ask(metadata(pod(nil, one), "labels", object{})); err != nil {
		t.Errorf("a pod without the label is refused: %v", err)
	}
}

// TestInstalledAgain removes everything and installs it again.
func TestInstalledAgain(t *testing.T) {
	restore(t)
	must.Get(kubectl("", "delete", "-k", deploy))(t)
	must.Do(t, eventually(func() error {
		got, err := ask(pod(settings{}, one))
		if err == nil && got.find("sidecar") != nil {
			err = fmt.Errorf("still injected")
		}
		return err
	}))
}

// TestOverlay installs what a platform team would: its image and its defaults.
func TestOverlay(t *testing.T) {
	restore(t)
	must.Get(kubectl("", "apply", "-k", "../../../examples/inject"))(t)
	var got *Pod
	must.Do(t, eventually(func() (err error) { // what the pod says comes first
		if got, err = ask(pod(settings{"service": "a-b", "queue-type": "classic"}, one)); err != nil {
			return err
		}
		if c := got.find("sidecar"); c == nil || c.Image != "registry.example.com/platform/amqp-sidecar:1.2.3" {
			return fmt.Errorf("injected: %+v", c)
		}
		return nil
	}))
	if env := got.environment(); env["SIDECAR_QUEUE_TYPE"] != "classic" || got.brokerSecret() != "rabbitmq" {
		t.Errorf("%v, %+v", env, got.Spec.Volumes)
	}
	got = must.Get(ask(metadata(pod(settings{"service": "a-b"}, one), "namespace", plain)))(t) // then the namespace, then the cluster
	if env := got.environment(); env["SIDECAR_QUEUE_TYPE"] != "quorum" || env["SIDECAR_CONCURRENCY"] != "3" || got.brokerSecret() != "shared" {
		t.Errorf("%v, %+v", env, got.Spec.Volumes)
	}
	const patch = `[{"op": "replace", "path": "/spec/variables/0/expression", "value": "{'image': 'x', 'queue-type': 'both', 'typo': ''}"}]`
	must.Get(kubectl("", "patch", "validatingadmissionpolicy", "amqp-sidecar-check", "--type=json", "-p", patch))(t)
	refused(t, pod(settings{"service": "a-b"}, one), `amqp-sidecar/queue-type="both" (a default of the policies): allowed: auto, classic or quorum`)
	refused(t, pod(settings{"service": "a-b"}, one), "typo (a default of the policies): unknown")
}

// TestNamespaceDefaults names the namespace in what is wrong with its annotations.
func TestNamespaceDefaults(t *testing.T) {
	t.Cleanup(func() {
		if _, err := kubectl("", "annotate", "namespace", plain, "amqp-sidecar/typo-", "--overwrite", "amqp-sidecar/concurrency=3"); err != nil {
			t.Error(err)
		}
	})
	must.Get(kubectl("", "annotate", "namespace", plain, "--overwrite", "amqp-sidecar/concurrency=many", "amqp-sidecar/typo=1"))(t)
	refused(t, metadata(pod(usual, one), "namespace", plain), `amqp-sidecar/concurrency="many" (an annotation of the namespace): allowed: 1 to 10000`)
	refused(t, metadata(pod(usual, one), "namespace", plain), "amqp-sidecar/typo (an annotation of the namespace): unknown")
}

// latePolicy adds a container to some pods, as a mesh does, before us or after us: the API server promises no order.
const latePolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: inject-test-late}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    objectSelector: {matchLabels: {inject-test: late}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration:
        expression: "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'mesh', image: 'mesh'}]}}"
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: inject-test-late}
spec: {policyName: inject-test-late}
`

// TestLateContainer has a container that another process adds during the same admission: it waits for the drain, too.
func TestLateContainer(t *testing.T) {
	must.Get(kubectl(latePolicy, "apply", "-f", "-"))(t)
	t.Cleanup(func() {
		if _, err := kubectl(latePolicy, "delete", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	late := metadata(pod(usual, one), "labels", object{"amqp-sidecar/inject": "true", "inject-test": "late"})
	var got *Pod
	must.Do(t, eventually(func() (err error) {
		if got, err = ask(late); err == nil && got.find("mesh") == nil {
			err = errors.New("the other policy is not at work")
		}
		return err
	}))
	for _, c := range got.Spec.Containers {
		if c.waits() != 9090 {
			t.Errorf("container %s does not wait for the drain", c.Name)
		}
	}
	got.sameContainer(t)
	if names := got.initNames(); len(names) != 1 {
		t.Errorf("init containers %v", names)
	}
}

// restore installs everything again after the test.
func restore(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		must.Get(kubectl("", "apply", "-k", deploy))(t)
		must.Do(t, prepare())
	})
}

// refused waits until the API server has noticed, and refuses the pod for that reason.
func refused(t *testing.T, p object, reason string) {
	t.Helper()
	must.Do(t, eventually(func() error {
		got, err := ask(p)
		switch {
		case err == nil:
			return fmt.Errorf("admitted: %s", got.raw)
		case !strings.Contains(err.Error(), reason):
			return fmt.Errorf("does not say %q: %w", reason, err)
		}
		return nil
	}))
}
