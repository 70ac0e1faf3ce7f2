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

// TestAsAPart installs the chart as a part of another one, under a name of its own, switched on by "enabled".
func TestAsAPart(t *testing.T) {
	t.Parallel()
	dir := umbrella(t, "global: {registry: x}\nbilling: {enabled: true, app: {image: {repository: app, tag: '1'}}, broker: {existingSecret: broker}}\n", "billing")
	for _, helm := range []string{helm3, helm4} {
		c := sidecar(t, pod(find(t, template(t, helm, dir), "Deployment")))
		if c.text("image") != "amqp-sidecar:"+appVersion(t) {
			t.Errorf("%v", c)
		}
		for _, o := range template(t, helm, dir, "--set", "billing.enabled=false") {
			t.Errorf("%s although it is switched off", o.text("kind"))
		}
	}
}

// TestTwoParts: two in one release share no object, no selector and no queue.
func TestTwoParts(t *testing.T) {
	t.Parallel()
	all := "{app: {image: {repository: app, tag: '1'}}, broker: {url: 'amqp://u:p@h'}, networkPolicy: {enabled: true}, pdb: {enabled: true}, " +
		"metrics: {podMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true}}}\n"
	dir := umbrella(t, "billing: "+all+"mailer: "+all, "billing", "mailer")
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
				services[sidecar(t, pod(o)).text("env", 0, "value")] = true
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

// TestNullInAPart: the chart around it may set its values to null as well.
func TestNullInAPart(t *testing.T) {
	t.Parallel()
	dir := umbrella(t, "billing: {app: {image: {repository: app, tag: '1'}, env: null}, broker: {existingSecret: broker}, extraContainers: null, "+
		"sidecar: null, topology: {preset: null}, workload: {kind: null}, autoscaling: {enabled: true, minReplicas: null, "+
		"type: null, scaleDownStabilizationSeconds: null, keda: {existingSecret: k}}}\n", "billing")
	for _, helm := range []string{helm3, helm4} {
		o := find(t, template(t, helm, dir), "ScaledObject")
		window := o.at("spec", "advanced", "horizontalPodAutoscalerConfig", "behavior", "scaleDown", "stabilizationWindowSeconds")
		if o.at("spec", "minReplicaCount") != 1.0 || window != 300.0 {
			t.Errorf("%v", o.at("spec"))
		}
	}
}

// TestNamesLikeOtherYAMLTypes: YAML takes these for a number, a boolean or nothing, unless they are quoted.
func TestNamesLikeOtherYAMLTypes(t *testing.T) {
	t.Parallel()
	s := readSchemas(t)
	for _, name := range []string{"no", "on", "y", "true", "null", "123", "1e3", "0x1f", "1.5"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for set, values := range map[string]string{"": "full", "nameOverride": "keda-url", "fullnameOverride": "hpa"} {
				args := []string{"template", name, chart, "--namespace", name, "--kube-version", kubernetes, "-f", filepath.Join(chart, "ci", values+"-values.yaml"),
					"--set", "networkPolicy.enabled=true", "--set", "pdb.enabled=true"}
				if set != "" {
					args[1] = "orders"
					args = append(args, "--set-string", set+"="+name)
				}
				out := must.Get(run(helm3, args...))(t)
				for _, o := range parse(t, strings.Split("\n"+out, "\n---\n")) {
					s.validate(t, set+" "+values, o)
				}
			}
		})
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
		name := find(t, called(t, c.release, c.set), "CronJob").text("metadata", "name")
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

func called(t *testing.T, release, override string) []object {
	t.Helper()
	out := must.Get(run(helm3, "template", release, chart, "--kube-version", kubernetes, "-f", filepath.Join(chart, "ci/cronjob-values.yaml"),
		"--set", "sidecar.service=orders-billing", "--set-string", "fullnameOverride="+override))(t)
	return parse(t, strings.Split("\n"+out, "\n---\n"))
}
