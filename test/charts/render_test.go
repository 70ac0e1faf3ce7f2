//go:build charts

package charts

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// TestChartsLint: the charts alone; what each example renders is compared below.
func TestChartsLint(t *testing.T) {
	t.Parallel()
	for _, helm := range []string{helm3, helm4} {
		for _, dir := range []string{chart, library, example} {
			if out, err := run(helm, "lint", "--strict", dir); err != nil {
				t.Errorf("%s\n%v", out, err)
			}
		}
	}
}

func TestBothHelmsRenderTheSame(t *testing.T) {
	t.Parallel()
	for _, values := range examples(t) {
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

// installation finds a command that installs a chart of this repository, up to the end of its last line.
var installation = regexp.MustCompile(`(?m)^(?:\$ )?helm install ((?:[^\n\\]|\\\n)+)$`)

// TestDocumentedInstallations: what the pages install renders, with the values that the page gives.
func TestDocumentedInstallations(t *testing.T) {
	t.Parallel()
	found := 0
	for _, page := range []string{"README.md", "docs/kubernetes.md", "deploy/helm/amqp-sidecar/README.md"} {
		for _, m := range installation.FindAllStringSubmatch(read(t, filepath.Join(root, page)), -1) {
			args := []string{"template", "--kube-version", kubernetes}
			for word := range strings.FieldsSeq(strings.ReplaceAll(m[1], "\\\n", " ")) {
				if path := filepath.Join(root, word); strings.Contains(word, "/") && !strings.Contains(word, "=") {
					if _, err := os.Stat(path); err != nil {
						t.Errorf("%s: %v", page, err)
					}
					word = path
				}
				if word != "--wait" {
					args = append(args, word)
				}
			}
			for _, helm := range []string{helm3, helm4} {
				if _, err := run(helm, args...); err != nil {
					t.Errorf("%s: %v", page, err)
				}
			}
			found++
		}
	}
	if found < 4 {
		t.Errorf("only %d installations are documented: has their form changed?", found)
	}
}

// appVersion is the version of the sidecar; five files say it, and a release changes all of them.
func appVersion(t *testing.T) string {
	t.Helper()
	versions, version := map[string]bool{}, ""
	for file, before := range map[string]string{
		filepath.Join(chart, "Chart.yaml"): "\nappVersion: ", filepath.Join(library, "Chart.yaml"): "\nappVersion: ",
		filepath.Join(library, "templates/_values.tpl"):                   "define \"amqp-sidecar-lib.appVersion\" -}}\n",
		filepath.Join(root, "deploy/inject/kustomization.yaml"):           "newTag: ",
		filepath.Join(root, "deploy/inject/component/kustomization.yaml"): "newTag: ",
	} {
		_, rest, _ := strings.Cut(read(t, file), before)
		version, _, _ = strings.Cut(rest, "\n")
		version = strings.Trim(version, "\"")
		versions[version] = true
	}
	if len(versions) != 1 {
		t.Fatalf("versions of the sidecar: %v", versions)
	}
	return version
}
