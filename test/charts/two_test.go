//go:build charts

package charts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// twoSidecars is the chart of the section about two sidecars on the library's page.
func twoSidecars(t *testing.T) (dir string) {
	t.Helper()
	_, section, _ := strings.Cut(read(t, filepath.Join(library, "README.md")), "## Two sidecars in one pod\n")
	blocks := strings.Split(section, "```yaml\n")
	dir = t.TempDir()
	shown := func(block string) string { text, _, _ := strings.Cut(block, "```\n"); return text }
	write(t, dir, map[string]string{
		"Chart.yaml": read(t, filepath.Join(example, "Chart.yaml")), "values.yaml": shown(blocks[1]), "templates/deployment.yaml": shown(blocks[2]),
	})
	must.Do(t, os.Mkdir(filepath.Join(dir, "charts"), 0o750))
	must.Do(t, os.Symlink(must.Get(filepath.Abs(library))(t), filepath.Join(dir, "charts/amqp-sidecar-lib")))
	return dir
}

// TestTwoSidecarsInOnePod share no name and no port, and what each mounts and says is its own.
func TestTwoSidecarsInOnePod(t *testing.T) {
	t.Parallel()
	dir, s := twoSidecars(t), readSchemas(t)
	for _, helm := range []string{helm3, helm4} {
		d := find(t, template(t, helm, dir), "Deployment")
		s.validate(t, "two sidecars", d)
		used := map[string]bool{}
		once := func(what string) {
			if used[what] {
				t.Errorf("%s is there twice", what)
			}
			used[what] = true
		}
		spec := pod(d)
		for _, v := range spec.at("volumes").([]any) {
			once("volume " + object(v.(map[string]any)).text("name"))
		}
		for _, list := range []string{"initContainers", "containers"} {
			for _, c := range spec.at(list).([]any) {
				c := object(c.(map[string]any))
				once("container " + c.text("name"))
				mounts, _ := c.at("volumeMounts").([]any)
				for _, m := range mounts {
					if volume := object(m.(map[string]any)).text("name"); !used["volume "+volume] {
						t.Errorf("%s mounts %s, and there is no such volume", c.text("name"), volume)
					}
				}
				if c.text("ports", 0, "name") == "" {
					continue
				}
				once("port " + c.text("ports", 0, "name"))
				once(fmt.Sprint("port ", c.at("ports", 0, "containerPort")))
				if fmt.Sprint(c.at("livenessProbe", "httpGet", "port")) != fmt.Sprint(c.at("ports", 0, "containerPort")) {
					t.Errorf("%s is asked on another port", c.text("name"))
				}
				if _, err := ask(environment(t, c), "config"); err != nil {
					t.Error(err)
				}
			}
		}
		for _, want := range []string{
			"container sidecar", "container sidecar-config", "container audit", "container audit-config", "port sidecar-admin",
			"port audit-admin", "port 9090", "port 9190", "volume amqp-sidecar-broker", "volume amqp-audit-broker",
		} {
			if !used[want] {
				t.Errorf("no %s in %v", want, used)
			}
		}
		if port := spec.at("containers", 0, "lifecycle", "preStop", "httpGet", "port"); port != 9090.0 {
			t.Errorf("the app's hook asks the port %v", port)
		}
	}
}

// TestTwoSidecarsCollide: what the second one has in common with the first is refused.
func TestTwoSidecarsCollide(t *testing.T) {
	t.Parallel()
	dir := twoSidecars(t)
	for set, want := range map[string]string{
		"audit.sidecar.name=sidecar":                             `- sidecar.name: two sidecars of the pod are named "sidecar"`,
		"audit.sidecar.adminPort=9090":                           "- sidecar.adminPort: port 9090 is that of the sidecar audit (SIDECAR_ADMIN_ADDR)",
		"audit.sidecar.control.address=127.0.0.1:9091":           "- sidecar.control.address: port 9091 is that of the sidecar audit (SIDECAR_CONTROL_ADDR)",
		"orders.publish.enabled=true,audit.publish.enabled=true": "- publish.enabled: port 9092 is that of the sidecar audit (SIDECAR_PUBLISH_ADDR)",
	} {
		_, err := run(helm3, "template", release, dir, "--kube-version", kubernetes, "--set", set)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "\n- ") != 1 {
			t.Errorf("not said: %s\n%v", want, err)
		}
	}
}
