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

// umbrella is a chart with the chart as a dependency under each of the aliases; values are its own.
func umbrella(t *testing.T, values string, aliases ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	self := must.Get(filepath.Abs(chart))(t)
	about := "apiVersion: v2\nname: platform\nversion: 1.0.0\ndependencies:\n"
	for _, alias := range aliases {
		about += fmt.Sprintf("  - {name: amqp-sidecar, alias: %s, version: '>=0', repository: '', condition: %s.enabled}\n", alias, alias)
	}
	write(t, dir, map[string]string{"Chart.yaml": about, "values.yaml": values})
	must.Do(t, os.Mkdir(filepath.Join(dir, "charts"), 0o750))
	must.Do(t, os.Symlink(self, filepath.Join(dir, "charts/amqp-sidecar")))
	return dir
}

// TestTwoParts: two in one release, each under a name of its own and switched on by "enabled", share no object, no selector
// and no queue.
func TestTwoParts(t *testing.T) {
	t.Parallel()
	all := "{enabled: true, app: {image: {repository: app, tag: '1'}}, broker: {url: 'amqp://u:p@h'}, networkPolicy: {enabled: true}, pdb: {enabled: true}, " +
		"metrics: {podMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true}}}\n"
	dir := umbrella(t, "global: {registry: x}\nbilling: "+all+"mailer: "+all, "billing", "mailer")
	for _, helm := range []string{helm3, helm4} {
		names, selectors, services := map[string]bool{}, map[string]bool{}, map[string]bool{}
		objects := template(t, helm, dir)
		for _, o := range objects {
			name := o.text("kind") + " " + o.text("metadata", "name")
			if names[name] {
				t.Errorf("two are called %s", name)
			}
			names[name] = true
			if o.text("kind") == "Deployment" {
				selectors[fmt.Sprint(o.at("spec", "selector", "matchLabels"))] = true
				c := sidecar(t, pod(o))
				services[c.text("env", 0, "value")] = true
				if c.text("image") != "amqp-sidecar:"+appVersion(t) {
					t.Errorf("%v", c)
				}
			}
		}
		if len(objects) != 2*9 || len(selectors) != 2 {
			t.Errorf("%d objects, selectors %v", len(objects), selectors)
		}
		if len(services) != 2 || !services[release+"-billing"] || !services[release+"-mailer"] {
			t.Errorf("services %v", services)
		}
		if !names["Deployment "+release+"-billing"] || !names["Deployment "+release+"-mailer"] {
			t.Errorf("%v", names)
		}
	}
}

// TestLongNames: what is too long is cut so that it stays a name, and another one than its neighbour's.
func TestLongNames(t *testing.T) {
	t.Parallel()
	a, dots := strings.Repeat("a", 52), strings.Repeat("a", 42)
	seen := map[string]string{}
	for _, c := range []struct{ release, set, want string }{
		{strings.Repeat("a", 50), "", strings.Repeat("a", 50)},
		{a + "a", "", ""}, {a + "b", "", ""},
		{dots + ".bbbbbbbbb", "", ""},
		{"orders", dots + "-.bbbbbbbbb", ""}, {"orders", dots + ".-bbbbbbbbb", ""},
		{"orders", "-billing-", "billing"}, {"orders", "billing.", "billing"},
	} {
		rendered := templateAs(t, c.release, helm3, chart, "-f", filepath.Join(chart, "ci/cronjob-values.yaml"),
			"--set", "sidecar.service=orders-billing", "--set-string", "fullnameOverride="+c.set)
		name := find(t, rendered, "CronJob").text("metadata", "name")
		if c.want != "" && name != c.want {
			t.Errorf("%v is called %s", c, name)
		}
		if len(name) > 50 || strings.Trim(name, "-.") != name || strings.Contains(name, ".-") || strings.Contains(name, "-.") {
			t.Errorf("%v is called %s", c, name)
		}
		if seen[name] != "" && c.want == "" {
			t.Errorf("%v and %s are both called %s", c, seen[name], name)
		}
		seen[name] = fmt.Sprint(c)
	}
}

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
	dir := twoSidecars(t)
	for _, helm := range []string{helm3, helm4} {
		d := find(t, template(t, helm, dir), "Deployment")
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
