//go:build kubernetes

package inject

import (
	"encoding/json"
	"testing"

	"sidecar/internal/testkit/must"
)

// quiet is a pod without the volume of the service account, whose name is random.
const quiet = `{"automountServiceAccountToken": false, "containers": [{"name": "app", "image": "a"}]}`

// TestUntouched sends pods that no policy is for, whatever else is on them. They pass as they would without
// the policies, of which the namespace that is left alone is the proof.
func TestUntouched(t *testing.T) {
	const port = `"ports": [{"name": "sidecar-admin", "containerPort": 9090}], "env": [{"name": "SIDECAR_SERVICE", "value": "x"}]`
	wrong := settings{"app-port": "nonsense", "whatever": "x"}
	for name, p := range map[string]object{
		"no label":      metadata(pod(wrong, quiet), "labels", object{"app": "x"}),
		"label false":   metadata(pod(wrong, quiet), "labels", object{"amqp-sidecar/inject": "false"}),
		"of the system": metadata(pod(wrong, quiet), "namespace", "kube-system"),
		"left alone":    metadata(pod(wrong, quiet), "namespace", closed),
		"host network":  metadata(pod(nil, `{"automountServiceAccountToken": false, "hostNetwork": true, "containers": [{"name": "sidecar", "image": "s"}]}`), "labels", object{}),
		// A pod that brings a sidecar, as those of the chart do: the label changes nothing, and no annotation is asked for.
		"own native sidecar": pod(nil, `{"automountServiceAccountToken": false, "initContainers": [{"name": "sidecar", "image": "s", "restartPolicy": "Always", `+port+`}], "containers": [{"name": "app", "image": "a"}]}`),
		"own container":      pod(nil, `{"automountServiceAccountToken": false, "containers": [{"name": "app", "image": "a"}, {"name": "sidecar", "image": "s", `+port+`}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := must.Get(ask(p))(t)
			reference := metadata(object{"apiVersion": "v1", "kind": "Pod", "spec": p["spec"], "metadata": p["metadata"]}, "namespace", closed)
			want := must.Get(ask(reference))(t)
			if c := want.find("sidecar"); c != nil && c.Image != "s" {
				t.Fatal("the policies apply to the namespace that is left alone")
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
	must.Do(t, json.Unmarshal(raw, &all))
	all["metadata"].(object)["namespace"] = namespace
	return must.Get(json.Marshal(all))(t)
}

// TestInjectedAgain sends what came out of the admission through it once more, as restoring a backup would.
func TestInjectedAgain(t *testing.T) {
	t.Parallel()
	once := must.Get(ask(pod(with(settings{"crash-limit": "2", "app-port": "3000"}), quiet)))(t)
	var again object
	must.Do(t, json.Unmarshal(once.raw, &again))
	delete(again, "status")
	for _, key := range []string{"name", "uid", "creationTimestamp", "managedFields"} {
		delete(again["metadata"].(object), key)
	}
	twice := must.Get(ask(again))(t)
	if !same(once, twice) {
		t.Errorf("injected twice: %s\nonce: %s", twice.raw, once.raw)
	}
}
