//go:build charts

// Package charts tests the Helm charts without a cluster: what they render, what they refuse, and that the sidecar
// takes the environment that they make. scripts/charts.sh runs it.
//
//	HELM3, HELM4   Helm of both kinds; required
//	SIDECAR_BIN    the sidecar; required
//	KUBE_OPENAPI   api/openapi-spec/swagger.json of Kubernetes; required
//	KUBE_CRDS      resource definitions of the Prometheus operator and of KEDA, files separated by colons; required
package charts

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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
	openapi, crds         string
	twoValues             = []string{"--set", "app.image.repository=app,app.image.tag=1", "--set", "broker.existingSecret=broker"}
	required              = map[string]*string{"HELM3": &helm3, "HELM4": &helm4, "SIDECAR_BIN": &program, "KUBE_OPENAPI": &openapi, "KUBE_CRDS": &crds}
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
