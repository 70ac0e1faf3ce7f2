//go:build kubernetes

package inject

import (
	"errors"
	"testing"

	"sidecar/internal/testkit/must"
)

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
