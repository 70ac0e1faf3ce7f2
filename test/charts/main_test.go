//go:build charts

// Package charts tests the Helm charts without a cluster: what they render, what they refuse, and that the sidecar
// takes the environment that they make. scripts/charts.sh runs it.
//
//	HELM3, HELM4   Helm of both kinds; required
//	SIDECAR_BIN    the sidecar; required
package charts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

const (
	release = "orders-billing"
	// kubernetes is the version that Helm takes for the cluster's.
	kubernetes = "1.36.3"
)

var (
	root                  = "../.."
	chart                 = filepath.Join(root, "deploy/helm/amqp-sidecar")
	library               = filepath.Join(root, "deploy/helm/amqp-sidecar-lib")
	example               = filepath.Join(root, "examples/helm-library")
	helm3, helm4, program string
	twoValues             = []string{"--set", "app.image.repository=app,app.image.tag=1", "--set", "broker.existingSecret=broker"}
	required              = map[string]*string{"HELM3": &helm3, "HELM4": &helm4, "SIDECAR_BIN": &program}
)

func TestMain(m *testing.M) {
	for name, value := range required {
		if *value = os.Getenv(name); *value == "" {
			fmt.Fprintln(os.Stderr, name+" is not set: run these tests with scripts/charts.sh")
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// examples are values files that render.
func examples(t *testing.T) []string {
	t.Helper()
	return append(files(t, filepath.Join(chart, "ci/*-values.yaml")), filepath.Join(chart, "values-minimal.yaml"))
}

// files lists what matches, and there must be some.
func files(t *testing.T, pattern string) []string {
	t.Helper()
	all, err := filepath.Glob(pattern)
	if err != nil || len(all) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(all), err)
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	return string(must.Get(os.ReadFile(name))(t))
}

// write makes files below a directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(name), 0o750))
		must.Do(t, os.WriteFile(name, []byte(text), 0o600))
	}
}

// valuesFile is a file of values, which are a text or become JSON.
func valuesFile(t *testing.T, values any) string {
	t.Helper()
	text, ok := values.(string)
	if !ok {
		text = string(must.Get(json.Marshal(values))(t))
	}
	dir := t.TempDir()
	write(t, dir, map[string]string{"values.yaml": text})
	return filepath.Join(dir, "values.yaml")
}

// extraEnv is the flag that sets a variable.
func extraEnv(t *testing.T, name, value string) string {
	t.Helper()
	return "--set-json=extraEnv=" + string(must.Get(json.Marshal([]map[string]string{{"name": name, "value": value}}))(t))
}

// object is one rendered manifest.
type object map[string]any

// at follows a path of keys; a number is an index of a list. nil: there is none.
func (o object) at(path ...any) any {
	var v any = map[string]any(o)
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

func (o object) text(path ...any) string {
	s, _ := o.at(path...).(string)
	return s
}

// run starts Helm, which must not find a cluster.
func run(helm string, args ...string) (out string, err error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(helm, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG=/nowhere")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// template renders a chart.
func template(t *testing.T, helm, chart string, args ...string) []object {
	t.Helper()
	return templateAs(t, release, helm, chart, args...)
}

func templateAs(t *testing.T, release, helm, chart string, args ...string) []object {
	t.Helper()
	out := must.Get(run(helm, append([]string{"template", release, chart, "--namespace", "billing", "--kube-version", kubernetes}, args...)...))(t)
	return parse(t, strings.Split("\n"+out, "\n---\n"))
}

// refuses renders a chart that must not render, and returns what Helm says.
func refuses(t *testing.T, helm string, args ...string) string {
	t.Helper()
	_, err := run(helm, append([]string{"template", release, chart, "--kube-version", kubernetes}, args...)...)
	if err == nil {
		t.Fatalf("rendered with %v", args)
	}
	return err.Error()
}

// converter is a chart that turns YAML into JSON: Helm reads both, and this module needs neither for anything else.
var converter = map[string]string{
	"Chart.yaml": "apiVersion: v2\nname: converter\nversion: 1.0.0\n",
	"templates/all.yaml": `{{ range $name, $_ := .Files.Glob "in/*" }}
---
# {{ dict "kind" "X" "name" $name "content" ($.Files.Get $name | fromYaml) | toJson }}
{{ end }}`,
}

// parse reads YAML documents; empty ones are left out.
func parse(t *testing.T, documents []string) []object {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, converter)
	for i, d := range documents {
		write(t, dir, map[string]string{fmt.Sprintf("in/%04d.yaml", i): d})
	}
	out := must.Get(run(helm3, "template", dir))(t)
	var all []object
	for line := range strings.Lines(out) {
		line, found := strings.CutPrefix(strings.TrimSpace(line), "# {")
		if !found {
			continue
		}
		var d struct{ Content object }
		must.Do(t, json.Unmarshal([]byte("{"+line), &d))
		if problem := d.Content.text("Error"); problem != "" {
			t.Fatalf("not YAML: %s", problem)
		}
		if len(d.Content) > 0 {
			all = append(all, d.Content)
		}
	}
	return all
}

// find returns the one object of a kind.
func find(t *testing.T, all []object, kind string) object {
	t.Helper()
	found := slices.DeleteFunc(slices.Clone(all), func(o object) bool { return o.text("kind") != kind })
	if len(found) != 1 {
		t.Fatalf("%d objects of the kind %s", len(found), kind)
	}
	return found[0]
}

// pod is the pod's specification in whatever runs it, and nil where that is not a pod.
func pod(o object) object {
	path := map[string][]any{
		"Deployment": {"spec", "template", "spec"}, "Job": {"spec", "template", "spec"},
		"CronJob": {"spec", "jobTemplate", "spec", "template", "spec"}, "Pod": {"spec"},
	}[o.text("kind")]
	m, _ := o.at(path...).(map[string]any)
	if path == nil {
		return nil
	}
	return m
}

// sidecar is its container in a pod's specification, or the one that only migrates the outbox.
func sidecar(t *testing.T, spec object) object {
	t.Helper()
	for _, list := range []string{"initContainers", "containers"} {
		all, _ := spec.at(list).([]any)
		for _, c := range all {
			if m, _ := c.(map[string]any); m["name"] == "sidecar" || m["name"] == "outbox-migrate" {
				return m
			}
		}
	}
	t.Fatal("no sidecar in the pod")
	return nil
}

// env is the environment of a container as it is rendered, by name.
func env(t *testing.T, c object) map[string]string {
	t.Helper()
	all := map[string]string{}
	list, _ := c.at("env").([]any)
	for i := range list {
		name := c.text("env", i, "name")
		if _, twice := all[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		all[name] = c.text("env", i, "value")
	}
	return all
}
