//go:build kubernetes

package kubernetes

import (
	"path/filepath"
	"strings"
	"testing"
)

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
				out, err := s.tryKubectl(manifest, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
				if err != nil {
					t.Fatal(err)
				}
				for line := range strings.Lines(out) {
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
