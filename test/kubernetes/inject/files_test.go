//go:build kubernetes

package inject

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// The tests of this file compare files with each other; the cluster has no part in them.

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

// TestVersion has one version of the chart, the policies and the component: a release changes all of them.
func TestVersion(t *testing.T) {
	version := regexp.MustCompile(`(?m)^appVersion: "(.+)"$`).FindStringSubmatch(read(t, "../../../deploy/helm/amqp-sidecar/Chart.yaml"))[1]
	for _, file := range []string{deploy + "/kustomization.yaml", deploy + "/component/kustomization.yaml"} {
		if !strings.Contains(read(t, file), "newTag: "+version+"\n") {
			t.Errorf("%s has another version than the chart's %s", file, version)
		}
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
