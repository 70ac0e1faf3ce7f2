//go:build charts

package charts

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestChartsLint is what a maintainer and `helm install` see first.
func TestChartsLint(t *testing.T) {
	t.Parallel()
	for _, helm := range []string{helm3, helm4} {
		for _, dir := range []string{chart, library, example} {
			if out, err := run(helm, "lint", "--strict", dir); err != nil {
				t.Errorf("%s\n%v", out, err)
			}
		}
		for _, values := range files(t, filepath.Join(chart, "ci/*-values.yaml")) {
			out, err := run(helm, "lint", "--strict", chart, "-f", values)
			if err != nil || strings.Contains(out, "Fail:") { // lint only mentions what the templates refuse
				t.Errorf("%s: %s\n%v", values, out, err)
			}
		}
	}
}

func TestBothHelmsRenderTheSame(t *testing.T) {
	t.Parallel()
	for _, values := range files(t, filepath.Join(chart, "ci/*-values.yaml")) {
		three, four := template(t, helm3, chart, "-f", values), template(t, helm4, chart, "-f", values)
		byName := func(all []object) map[string]object {
			named := map[string]object{}
			for _, o := range all {
				named[o.text("kind")+" "+o.text("metadata", "name")] = o
			}
			return named
		}
		if !reflect.DeepEqual(byName(three), byName(four)) {
			t.Errorf("%s: Helm 3 and 4 differ", values)
		}
		if len(byName(three)) != len(three) {
			t.Errorf("%s: two objects have one name", values)
		}
	}
}

// TestObjectsAreValid compares what is rendered with what the API server of kubernetes and the operators would take,
// unknown fields refused.
func TestObjectsAreValid(t *testing.T) {
	t.Parallel()
	s := readSchemas(t)
	for _, values := range files(t, filepath.Join(chart, "ci/*-values.yaml")) {
		for _, o := range template(t, helm3, chart, "-f", values) {
			s.validate(t, values, o)
		}
	}
	for _, o := range template(t, helm3, example) {
		s.validate(t, example, o)
	}
}

func TestSchemasFindWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := readSchemas(t)
	for _, o := range []object{
		{"apiVersion": "v1", "kind": "Secret", "stringDatas": map[string]any{}},
		{"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"replicas": "two"}},
		{"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "spec": map[string]any{"podMetricEndpoints": []any{}}},
		{"apiVersion": "v1", "kind": "Nothing"},
	} {
		if s.problem(o) == nil {
			t.Errorf("nothing is wrong with %v", o)
		}
	}
}

// TestLibraryExample shows that the library serves a chart of another owner's, and that its page shows how.
func TestLibraryExample(t *testing.T) {
	t.Parallel()
	d := find(t, template(t, helm3, example), "Deployment")
	c := sidecar(t, pod(d))
	if c.text("restartPolicy") != "Always" || c.text("image") != "amqp-sidecar:"+appVersion(t) {
		t.Errorf("%v", c)
	}
	if pod(d).text("containers", 0, "lifecycle", "preStop", "httpGet", "path") != "/drained" {
		t.Error("the app has no hook")
	}
	page := read(t, filepath.Join(library, "README.md"))
	for _, file := range []string{"values.yaml", "templates/deployment.yaml", "templates/secret.yaml"} {
		if text := read(t, filepath.Join(example, file)); !strings.Contains(page, "```yaml\n"+text+"```\n") {
			t.Errorf("README.md of the library does not show %s as it is", file)
		}
	}
	by := template(t, helm3, example, "--set", "messages.broker.existingSecret=", "--set", "messages.broker.url=amqp://u:p@h")
	if name := find(t, by, "Secret").text("metadata", "name"); name != pod(find(t, by, "Deployment")).text("volumes", 0, "secret", "secretName") {
		t.Errorf("the pod mounts another Secret than %s", name)
	}
}

// appVersion is the version of the chart's sidecar; three files say it.
func appVersion(t *testing.T) string {
	t.Helper()
	versions := map[string]bool{}
	for _, dir := range []string{chart, library} {
		for line := range strings.Lines(read(t, filepath.Join(dir, "Chart.yaml"))) {
			if v, found := strings.CutPrefix(line, "appVersion: "); found {
				versions[strings.Trim(v, "\"\n")] = true
			}
		}
	}
	_, rest, _ := strings.Cut(read(t, filepath.Join(library, "templates/_values.tpl")), "define \"amqp-sidecar-lib.appVersion\" -}}\n")
	version, _, _ := strings.Cut(rest, "\n")
	versions[version] = true
	if len(versions) != 1 {
		t.Fatalf("versions of the sidecar: %v", versions)
	}
	return version
}
