//go:build kubernetes

package inject

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

const example = "../../../examples/kustomize"

// TestComponent builds the example of the Kustomize component, has the API server check it, and the binary check what
// the kubelet would make of it.
func TestComponent(t *testing.T) {
	t.Parallel()
	built := must.Get(kubectl("", "kustomize", example))(t)
	if strings.Contains(built, "kind: PodTemplate") {
		t.Error("the object that is only read by kustomize would be applied")
	}
	if warned, err := kubectl(built, "apply", "--dry-run=server", "-n", space, "-f", "-"); err != nil || strings.Contains(warned, "Warning") {
		t.Fatalf("%v\n%s", err, warned)
	}
	for name, want := range map[string]struct {
		url, inits string
		containers int
	}{
		"orders-billing": {url: "http://127.0.0.1:3000/events", inits: "sidecar", containers: 1},
		"orders-mail":    {url: "http://127.0.0.1:8080", inits: "sidecar migrate", containers: 2},
	} {
		p := deployment(t, built, name)
		if inits, n := strings.Join(p.initNames(), " "), len(p.Spec.Containers); inits != want.inits || n != want.containers {
			t.Errorf("%s: init containers %s and %d containers, want %+v", name, inits, n, want)
		}
		for _, c := range p.Spec.Containers {
			if c.waits() != 9090 {
				t.Errorf("%s: container %s does not wait for the drain", name, c.Name)
			}
		}
		sidecar := p.find("sidecar")
		if sidecar.Image != "registry.example.com/amqp-sidecar:1.2.3" || p.Spec.TerminationGracePeriodSeconds != 60 {
			t.Errorf("%s: image %s, grace %d", name, sidecar.Image, p.Spec.TerminationGracePeriodSeconds)
		}
		p.sameContainer(t)
		p.expand(t)
		env := p.environment()
		if env["SIDECAR_SERVICE"] != name || env["SIDECAR_APP_URL"] != want.url {
			t.Errorf("%s: %v", name, env)
		}
		// The ConfigMap has a name that kustomize made; what is in it is read from the example.
		config := regexp.MustCompile(`(?m)^ *(SIDECAR_[A-Z_]+): "?([^"\n]*)"?$`).FindAllStringSubmatch(built, -1)
		if len(config) != 2 || !strings.HasPrefix(sidecar.EnvFrom[0].ConfigMapRef.Name, "amqp-sidecar-") {
			t.Errorf("%s: ConfigMap %v with %v", name, sidecar.EnvFrom, config)
		}
		sidecar.EnvFrom = nil
		for _, line := range config {
			sidecar.Env = append(sidecar.Env, variable{Name: line[1], Value: line[2]})
		}
		if err := p.configured(t.TempDir()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSameContainer: the chart and the injection make the same container, as the component does.
func TestSameContainer(t *testing.T) {
	t.Parallel()
	rendered := must.Get(exec.Command(os.Getenv("E2E_HELM4"), "template", "orders-billing", "../../../deploy/helm/amqp-sidecar", "--namespace", space,
		"--set", "app.image.repository=app,app.image.tag=1", "--set", "broker.existingSecret=broker").Output())(t)
	deployment(t, string(rendered), "orders-billing").sameContainer(t)
}

// deployment returns the pods of a Deployment as the API server would keep it.
func deployment(t *testing.T, manifests, name string) *Pod {
	t.Helper()
	raw := must.Get(kubectl(manifests, "create", "--dry-run=server", "-n", space, "-o", "json", "-f", "-"))(t)
	for decoder := json.NewDecoder(strings.NewReader(raw)); decoder.More(); {
		var d struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     struct{ Template json.RawMessage }
		}
		must.Do(t, decoder.Decode(&d))
		if d.Kind != "Deployment" || d.Metadata.Name != name {
			continue
		}
		p := &Pod{raw: d.Spec.Template}
		must.Do(t, json.Unmarshal(p.raw, p))
		return p
	}
	t.Fatalf("there is no Deployment %s", name)
	return nil
}

// expand does with the sidecar's variables what the kubelet does.
func (p *Pod) expand(t *testing.T) {
	t.Helper()
	known := map[string]string{}
	field := regexp.MustCompile(`^metadata\.annotations\['(.*)'\]$`)
	reference := regexp.MustCompile(`\$\(([A-Z_]+)\)`)
	env := p.find("sidecar").Env
	for i, e := range env {
		if path := e.ValueFrom.FieldRef.FieldPath; path != "" {
			key := field.FindStringSubmatch(path)
			if key == nil {
				t.Fatalf("%s is read from %s", e.Name, path)
			}
			e.Value = p.Metadata.Annotations[key[1]]
		}
		env[i].Value = reference.ReplaceAllStringFunc(e.Value, func(r string) string { return known[r[2:len(r)-1]] })
		known[e.Name] = env[i].Value
	}
}

// The tests below compare files with each other; the cluster has no part in them.

func read(t *testing.T, path string) string {
	t.Helper()
	b := must.Get(os.ReadFile(path))(t)
	return string(b)
}

// TestAnnotationsOfReadme has every annotation that the policies know in the table, and no other.
func TestAnnotationsOfReadme(t *testing.T) {
	list := regexp.MustCompile(`(?s)name: known\n.*?\[(.*?)\]`).FindStringSubmatch(read(t, deploy+"/settings.yaml"))
	if list == nil {
		t.Fatal("settings.yaml has no list of what is known")
	}
	var known, named []string
	for _, m := range regexp.MustCompile(`'([a-z-]+)'`).FindAllStringSubmatch(list[1], -1) {
		known = append(known, m[1])
	}
	_, table, _ := strings.Cut(read(t, deploy+"/README.md"), "\n|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for row := range strings.Lines(table) {
		for _, m := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			named = append(named, m[1])
		}
	}
	if !sameSet(known, named) {
		t.Errorf("the policies know %v\nREADME.md names %v", known, named)
	}
	rules := regexp.MustCompile(`(?m)^ +\['([a-z-]+)', (?:'\^|variables\.)`).FindAllStringSubmatch(read(t, deploy+"/problems.yaml"), -1)
	var checked []string
	for _, m := range rules {
		checked = append(checked, m[1])
	}
	known = slices.DeleteFunc(known, func(k string) bool { return k == "app-container" }) // compared with the pod
	if !sameSet(known, checked) {
		t.Errorf("known are %v\nchecked are %v", known, checked)
	}
}

// TestEditedImage sets the image where the release does, in kustomization.yaml itself.
func TestEditedImage(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.CopyFS(dir, os.DirFS(deploy)))
	file := filepath.Join(dir, "kustomization.yaml")
	changed := strings.Replace(read(t, file), "  - name: amqp-sidecar\n", "  - name: amqp-sidecar\n    newName: registry.example.com/amqp-sidecar\n", 1)
	must.Do(t, os.WriteFile(file, []byte(changed), 0o600))
	out := must.Get(kubectl("", "kustomize", dir))(t)
	if n := strings.Count(out, "registry.example.com/amqp-sidecar:"); n != 3 {
		t.Errorf("the image is in %d policies, not in 3:\n%s", n, out)
	}
	if strings.Contains(out, "kind: PodTemplate") {
		t.Error("the object that is only read by kustomize would be applied")
	}
}
