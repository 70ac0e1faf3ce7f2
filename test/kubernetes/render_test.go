//go:build kubernetes

package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// The values of the chart's examples, of the documentation and of its first installation render, and so does the example of
// the library. The API server takes the result, the objects of Prometheus and KEDA by their own definitions, also with names
// that YAML takes for another type unless they are quoted. A field that it does not know is an error. test/charts has that
// both Helms render the same.
func TestExamplesAreTaken(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	examples, err := filepath.Glob(filepath.Join(chart(), "ci/*-values.yaml"))
	if err != nil || len(examples) == 0 {
		t.Fatalf("the chart has no examples: %v", err)
	}
	base := filepath.Join(t.TempDir(), "base.yaml")
	must.Do(t, os.WriteFile(base, []byte("app: {image: {repository: app}}\nbroker: {existingSecret: orders-broker}\n"), 0o600))
	all := [][]string{{filepath.Join(root, "examples/helm-library")}}
	for _, file := range examples {
		all = append(all, []string{chart(), "-f", file})
	}
	for _, name := range []string{"no", "on", "null", "123", "1e3", "0x1f"} {
		for set, values := range map[string]string{"nameOverride": "full", "fullnameOverride": "hpa"} {
			all = append(all, []string{chart(), "-f", filepath.Join(chart(), "ci", values+"-values.yaml"), "--set-string", set + "=" + name})
		}
	}
	for _, file := range append(documentedValues(t), filepath.Join(root, "examples/kubernetes/values.yaml")) {
		all = append(all, []string{chart(), "-f", base, "-f", file})
	}
	kinds := map[string]bool{}
	for _, args := range all {
		manifest := s.helm(append([]string{"template", s.service}, args...)...)
		taken, err := s.tryKubectl(manifest, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
		if err != nil {
			t.Errorf("%v: %v", args, err)
		}
		for line := range strings.Lines(taken) {
			kind, _, _ := strings.Cut(line, "/")
			kinds[kind] = true
		}
	}
	for _, kind := range []string{
		"deployment.apps", "job.batch", "cronjob.batch", "networkpolicy.networking.k8s.io", "poddisruptionbudget.policy",
		"horizontalpodautoscaler.autoscaling", "podmonitor.monitoring.coreos.com", "prometheusrule.monitoring.coreos.com",
		"scaledobject.keda.sh", "triggerauthentication.keda.sh",
	} {
		if !kinds[kind] {
			t.Errorf("no example has a %s", kind)
		}
	}
}

// documentedValues writes each block of values that the documentation shows into a file.
func documentedValues(t *testing.T) (files []string) {
	t.Helper()
	for page, least := range map[string]int{"kubernetes.md": 14, "migration.md": 1} {
		doc := must.Get(os.ReadFile(filepath.Join(root, "docs", page)))(t)
		blocks := strings.Split(string(doc), "<!-- values -->\n```yaml\n")[1:]
		if len(blocks) < least {
			t.Errorf("%s has %d blocks of values: has their form changed?", page, len(blocks))
		}
		for i, block := range blocks {
			values, _, _ := strings.Cut(block, "```")
			file := filepath.Join(t.TempDir(), fmt.Sprintf("%s-%d.yaml", page, i+1))
			must.Do(t, os.WriteFile(file, []byte(values), 0o600))
			files = append(files, file)
		}
	}
	return files
}
