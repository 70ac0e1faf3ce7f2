//go:build charts

package charts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

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
