//go:build kubernetes

package inject

import (
	"encoding/json"
	"testing"
)

// quiet is a pod without the volume of the service account, whose name is random.
const quiet = `{"automountServiceAccountToken": false, "containers": [{"name": "app", "image": "a"}]}`

// TestUntouched sends pods that are nobody's business here, whatever else is on them. They pass as they would without the
// policies, of which the namespace that is left alone is the proof.
func TestUntouched(t *testing.T) {
	wrong := settings{"app-port": "nonsense", "whatever": "x"}
	for name, p := range map[string]object{
		"no label":      metadata(pod(wrong, quiet), "labels", object{"app": "x"}),
		"label false":   metadata(pod(wrong, quiet), "labels", object{"amqp-sidecar/inject": "false"}),
		"of the system": metadata(pod(wrong, quiet), "namespace", "kube-system"),
		"left alone":    metadata(pod(wrong, quiet), "namespace", closed),
		"host network":  metadata(pod(nil, `{"automountServiceAccountToken": false, "hostNetwork": true, "containers": [{"name": "sidecar", "image": "x"}]}`), "labels", object{}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ask(p)
			if err != nil {
				t.Fatal(err)
			}
			reference := metadata(object{"apiVersion": "v1", "kind": "Pod", "spec": p["spec"], "metadata": p["metadata"]}, "namespace", closed)
			want, err := ask(reference)
			if err != nil {
				t.Fatal(err)
			}
			if len(want.Spec.InitContainers) > 0 {
				t.Fatal("the policies look at the namespace that is left alone")
			}
			want.raw = relocate(t, want.raw, p["metadata"].(object)["namespace"].(string))
			if !same(got, want) {
				t.Errorf("changed to %s\nfrom %s", got.raw, want.raw)
			}
		})
	}
}

func relocate(t *testing.T, raw json.RawMessage, namespace string) json.RawMessage {
	t.Helper()
	var all object
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	all["metadata"].(object)["namespace"] = namespace
	raw, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestInjectedAgain sends what came out of the admission through it once more, as restoring a backup would.
func TestInjectedAgain(t *testing.T) {
	t.Parallel()
	once, err := ask(pod(with(settings{"crash-limit": "2", "app-port": "3000"}), quiet))
	if err != nil {
		t.Fatal(err)
	}
	var again object
	if err := json.Unmarshal(once.raw, &again); err != nil {
		t.Fatal(err)
	}
	delete(again, "status")
	for _, key := range []string{"name", "uid", "creationTimestamp", "managedFields"} {
		delete(again["metadata"].(object), key)
	}
	twice, err := ask(again)
	if err != nil {
		t.Fatal(err)
	}
	if !same(once, twice) {
		t.Errorf("injected twice: %s\nonce: %s", twice.raw, once.raw)
	}
}

// TestOwnSidecar sends a pod that brings a sidecar, as those of the chart do: the label changes nothing, and no annotation
// is asked for.
func TestOwnSidecar(t *testing.T) {
	const port = `"ports": [{"name": "sidecar-admin", "containerPort": 9090}], "env": [{"name": "SIDECAR_SERVICE", "value": "x"}]`
	for name, spec := range map[string]string{
		"native":    `{"automountServiceAccountToken": false, "initContainers": [{"name": "sidecar", "image": "s", "restartPolicy": "Always", ` + port + `}], "containers": [{"name": "app", "image": "a"}]}`,
		"container": `{"automountServiceAccountToken": false, "containers": [{"name": "app", "image": "a"}, {"name": "sidecar", "image": "s", ` + port + `}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ask(pod(nil, spec))
			if err != nil {
				t.Fatal(err)
			}
			want, err := ask(metadata(pod(nil, spec), "namespace", closed))
			if err != nil {
				t.Fatal(err)
			}
			want.raw = relocate(t, want.raw, space)
			if !same(got, want) {
				t.Errorf("changed to %s\nfrom %s", got.raw, want.raw)
			}
		})
	}
}
