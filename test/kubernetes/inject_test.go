//go:build kubernetes

package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// deploymentOf is a Deployment of the app without any sidecar. %[1]s is the service, %[2]s the app's image, %[3]s the
// collector, %[4]s more labels and %[5]s annotations of the pods.
const deploymentOf = `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": %[1]q}, "spec": {
	"replicas": 2, "selector": {"matchLabels": {"app.kubernetes.io/instance": %[1]q}}, "template": {
		"metadata": {"labels": {"app.kubernetes.io/instance": %[1]q%[4]s}, "annotations": {"amqp-sidecar/service": %[1]q%[5]s}},
		"spec": {"containers": [{"name": "web", "image": %[2]q, "env": [{"name": "COLLECTOR", "value": %[3]q}]}]}}}}`

// rollDeployment changes the template of the pods.
func (s *scene) rollDeployment() {
	s.t.Helper()
	s.kubectl("patch", "deployment", s.service, "-p", `{"spec": {"template": {"metadata": {"annotations": {"rollout": "second"}}}}}`)
}

// A label is all that it takes, and pods that got their sidecar that way roll like those of the chart.
// test/kubernetes/inject has what is admitted, and what is not.
func TestInjectedRollout(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	policies := filepath.Join(env.repo, "deploy/inject")
	must.Get(command("", "kubectl", "apply", "-k", policies))(t)
	t.Cleanup(func() {
		if _, err := command("", "kubectl", "delete", "-k", policies); err != nil {
			t.Error(err)
		}
	})
	deployment := fmt.Sprintf(deploymentOf, s.service, env.app, s.ledger.url, `, "amqp-sidecar/inject": "true"`,
		fmt.Sprintf(`, "amqp-sidecar/broker-secret": "broker", "amqp-sidecar/image": %q`, env.image))
	probe := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "probe-", "labels": {"amqp-sidecar/inject": "true"},
		"annotations": {"amqp-sidecar/service": "a", "amqp-sidecar/broker-secret": "a"}}, "spec": {"containers": [{"name": "a", "image": %q}]}}`, env.app)
	eventually(t, "policies at work", func() error {
		names, err := s.tryKubectl(probe, "create", "--dry-run=server", "-f", "-", "-o", "jsonpath={.spec.initContainers[*].name}")
		if err == nil && names != "sidecar" {
			err = errors.New("nothing was injected")
		}
		return err
	})
	s.apply(deployment)
	s.rollout(true, s.rollDeployment)
}

// The Kustomize component makes pods that do the same.
func TestComponentRollout(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	dir := t.TempDir()
	absolute := must.Get(filepath.Abs(filepath.Join(env.repo, "deploy/inject/component")))(t)
	component := must.Get(filepath.Rel(dir, absolute))(t) // kustomize takes relative paths only
	at := strings.LastIndex(env.image, ":")
	kustomization := fmt.Sprintf(`{"resources": ["deployment.json"], "components": [%q],
		"images": [{"name": "amqp-sidecar", "newName": %q, "newTag": %q}],
		"configMapGenerator": [{"name": "amqp-sidecar", "literals": ["SIDECAR_CONCURRENCY=20"]}],
		"patches": [{"target": {"kind": "Deployment"}, "patch": %q}]}`, component, env.image[:at], env.image[at+1:],
		`{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "any"}, "spec": {"template": {"spec": {"volumes":
			[{"name": "amqp-sidecar-broker", "secret": {"secretName": "broker"}}]}}}}`)
	for name, text := range map[string]string{
		"kustomization.yaml": kustomization,
		"deployment.json":    fmt.Sprintf(deploymentOf, s.service, env.app, s.ledger.url, "", `, "amqp-sidecar/app-port": "8080"`),
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	s.kubectl("apply", "-k", dir)
	s.rollout(true, s.rollDeployment)
}

// The chart and the injection make the same container; the component is compared with it in test/kubernetes/inject.
func TestSameContainer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	rendered := s.helm(s.release("template")...)
	created := must.Get(s.tryKubectl(rendered, "create", "--dry-run=server", "-o", "json", "-f", "-"))(t)
	kept := must.Get(os.ReadFile("inject/testdata/sidecar.json"))(t)
	var want map[string]any
	must.Do(t, json.Unmarshal(kept, &want))
	for decoder := json.NewDecoder(strings.NewReader(created)); decoder.More(); {
		var d struct {
			Kind string
			Spec struct {
				Template struct {
					Spec struct{ InitContainers []map[string]any }
				}
			}
		}
		must.Do(t, decoder.Decode(&d))
		if d.Kind != "Deployment" {
			continue
		}
		all := d.Spec.Template.Spec.InitContainers
		at := slices.IndexFunc(all, func(c map[string]any) bool { return c["name"] == "sidecar" })
		if at < 0 {
			break
		}
		got := all[at]
		for _, key := range []string{"env", "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "image"} {
			delete(got, key)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the chart has\n%v\nthe injection\n%v", got, want)
		}
		return
	}
	t.Error("the chart has no Deployment with the sidecar")
}
