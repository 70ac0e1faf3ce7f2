//go:build kubernetes

package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// workload is what pods are made from, and where the API takes it.
type workload struct{ kind, path string }

var workloads = []workload{
	{"Deployment", "/apis/apps/v1/namespaces/%s/deployments"},
	{"StatefulSet", "/apis/apps/v1/namespaces/%s/statefulsets"},
	{"DaemonSet", "/apis/apps/v1/namespaces/%s/daemonsets"},
	{"Job", "/apis/batch/v1/namespaces/%s/jobs"},
	{"CronJob", "/apis/batch/v1/namespaces/%s/cronjobs"},
}

// of makes a workload of such pods.
func (w workload) of(p object, name string) object {
	meta := p["metadata"].(object)
	template := object{"metadata": object{"labels": meta["labels"], "annotations": meta["annotations"]}, "spec": p["spec"]}
	version, spec := "apps/v1", object{"selector": object{"matchLabels": meta["labels"]}, "template": template}
	switch w.kind {
	case "StatefulSet":
		spec["serviceName"] = "x"
	case "Job":
		version, spec = "batch/v1", object{"template": template}
	case "CronJob":
		version, spec = "batch/v1", object{"schedule": "@daily", "jobTemplate": object{"spec": object{"template": template}}}
	}
	return object{"apiVersion": version, "kind": w.kind, "metadata": object{"name": name}, "spec": spec}
}

func (w workload) create(namespace string, o object) error {
	_, err := call(http.MethodPost, fmt.Sprintf(w.path, namespace)+"?dryRun=All", o)
	return err
}

func (w workload) taken(t *testing.T, namespace string, o object) {
	t.Helper()
	if err := w.create(namespace, o); err != nil {
		t.Errorf("%v is refused: %v", o["metadata"], err)
	}
}

func (w workload) refused(t *testing.T, o object, reasons ...string) {
	t.Helper()
	err := w.create(space, o)
	for _, want := range reasons {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, does not say %q", o["metadata"], err, want)
		}
	}
}

// TestWorkloads says what is wrong with pods before there are any.
func TestWorkloads(t *testing.T) {
	const never = `{"restartPolicy": "Never", "containers": [{"name": "app", "image": "app"}]}`
	for _, w := range workloads {
		t.Run(w.kind, func(t *testing.T) {
			t.Parallel()
			spec := one
			if w.kind == "Job" || w.kind == "CronJob" {
				spec = never
			}
			bad, unlabelled := pod(settings{"service": "a b"}, spec), object{"app": "x"}
			misplaced := w.of(metadata(pod(usual, spec), "labels", unlabelled), "misplaced")
			metadata(misplaced, "labels", object{"amqp-sidecar/inject": "true"})
			w.taken(t, space, w.of(pod(usual, spec), "good"))
			w.refused(t, w.of(bad, "bad"), `amqp-sidecar/service="a b": allowed:`, "amqp-sidecar/broker-secret is required")
			w.taken(t, closed, w.of(bad, "bad-where-left-alone"))
			w.taken(t, space, w.of(metadata(pod(settings{"service": "a b"}, spec), "labels", unlabelled), "unlabelled"))
			w.refused(t, misplaced, "the label amqp-sidecar/inject is on the "+w.kind+" itself and does nothing there")
			w.refused(t, w.of(pod(with(settings{"injected": "true"}), spec), "forged"), "amqp-sidecar/injected: unknown annotation")
		})
	}
}

// TestOldWorkload has a Deployment that was there before the policies, and is wrong by them: it can be scaled and gets
// its status, and is refused only when a user changes its pods.
func TestOldWorkload(t *testing.T) {
	w := workloads[0]
	path := fmt.Sprintf(w.path, space) + "/old"
	must.Get(kubectl("", "label", "namespace", space, "amqp-sidecar/inject=false"))(t)
	open := func() error {
		_, err := kubectl("", "label", "namespace", space, "amqp-sidecar/inject-", "--overwrite")
		return err
	}
	t.Cleanup(func() { _, _ = call(http.MethodDelete, path, nil) })
	old := w.of(pod(settings{"service": "a b"}, one), "old")
	old["spec"].(object)["replicas"] = 0
	err := eventually(func() error { // until the label counts
		_, err := call(http.MethodPost, fmt.Sprintf(w.path, space), old)
		return err
	})
	if again := open(); err != nil || again != nil {
		t.Fatal(err, again)
	}
	must.Do(t, eventually(func() error { // until it does not
		if w.create(space, w.of(pod(settings{"service": "a b"}, one), "new")) == nil {
			return fmt.Errorf("a new one is not refused")
		}
		return nil
	}))
	if _, err := kubectl("", "patch", "deployment/old", "-n", space, "-p", `{"spec": {"replicas": 1}}`); err != nil {
		t.Error(err)
	}
	if err := eventually(func() error { return observed(path, 2) }); err != nil { // the controller writes its status
		t.Error(err)
	}
	changed := maps.Clone(old)
	changed["spec"].(object)["template"].(object)["spec"] = json.RawMessage(`{"containers": [{"name": "app", "image": "app:2"}]}`)
	if _, err := call(http.MethodPut, path, changed); err == nil || !strings.Contains(err.Error(), `amqp-sidecar/service="a b"`) {
		t.Errorf("its pods were changed: %v", err)
	}
}

// observed reports whether the controller has seen a generation, and said why there are no pods.
func observed(path string, generation int) error {
	raw, err := call(http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	var d struct {
		Status struct {
			ObservedGeneration int
			Conditions         []struct{ Type, Message string }
		}
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return err
	}
	for _, c := range d.Status.Conditions {
		if c.Type == "ReplicaFailure" && strings.Contains(c.Message, `amqp-sidecar/service="a b"`) && d.Status.ObservedGeneration >= generation {
			return nil
		}
	}
	return fmt.Errorf("the status is %+v", d.Status)
}
