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

// taken has the API server take objects, without a change. A field that it does not know is an error.
func (s *scene) taken(manifest string) (string, error) {
	return s.tryKubectl(manifest, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
}

// What the chart renders for each of its examples is taken by the API server, the objects of Prometheus and KEDA by
// their own definitions. A field that it does not know is an error.
func TestExamplesAreTaken(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(chart(), "ci/*-values.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the chart has no examples: %v", err)
	}
	s := newScene(t)
	kinds := map[string]bool{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), "-values.yaml")
		for helm, binary := range map[string]string{"helm3": env.helm3, "helm4": env.helm4} {
			t.Run(name+"/"+helm, func(t *testing.T) {
				manifest := s.helmOf(binary, "template", s.service, chart(), "-f", file)
				for line := range strings.Lines(must.Get(s.taken(manifest))(t)) {
					kind, _, _ := strings.Cut(line, "/")
					kinds[kind] = true
				}
			})
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

// The values that the documentation shows, and those of its first installation, render, and the API server takes the
// result.
func TestDocumentedValuesAreTaken(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	files := []string{filepath.Join(env.repo, "examples/kubernetes/values.yaml")}
	for page, least := range map[string]int{"kubernetes.md": 14, "migration.md": 1} {
		doc := must.Get(os.ReadFile(filepath.Join(env.repo, "docs", page)))(t)
		blocks := strings.Split(string(doc), "<!-- values -->\n```yaml\n")[1:]
		if len(blocks) < least {
			t.Errorf("%s has %d blocks of values: has their form changed?", page, len(blocks))
		}
		for _, block := range blocks {
			values, _, _ := strings.Cut(block, "```")
			file := filepath.Join(t.TempDir(), fmt.Sprintf("%d.yaml", len(files)))
			must.Do(t, os.WriteFile(file, []byte(values), 0o600))
			files = append(files, file)
		}
	}
	for _, file := range files {
		base := filepath.Join(t.TempDir(), "base.yaml")
		must.Do(t, os.WriteFile(base, []byte("app: {image: {repository: app}}\nbroker: {existingSecret: orders-broker}\n"), 0o600))
		manifest := s.helm("template", s.service, chart(), "-f", base, "-f", file)
		if _, err := s.taken(manifest); err != nil {
			text, _ := os.ReadFile(file)
			t.Errorf("%v\n%s", err, text)
		}
	}
}
