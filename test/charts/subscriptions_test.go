//go:build charts

package charts

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// rendered is the environment of the chart's sidecar with values as JSON, by name.
func rendered(t *testing.T, values map[string]any) map[string]string {
	t.Helper()
	c := sidecar(t, pod(find(t, template(t, helm3, chart, append([]string{"-f", valuesFile(t, values)}, twoValues...)...), "Deployment")))
	env := map[string]string{}
	for i := range c.at("env").([]any) {
		name := c.text("env", i, "name")
		if _, twice := env[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		env[name] = c.text("env", i, "value")
	}
	return env
}

// TestEveryValueOfASubscription: each variable that the sidecar takes for one subscription, and that has a value, has that
// value below a subscription, too, and no other has.
func TestEveryValueOfASubscription(t *testing.T) {
	t.Parallel()
	typed := typedValues(t)
	typed["SIDECAR_APP_URL"] = "app.url"
	one, want := map[string]any{}, map[string]string{"SIDECAR_SUBSCRIPTIONS": "order-lines"}
	for name, v := range variables() {
		path, _ := typed[name].(string)
		if !v.Scoped || path == "" {
			continue
		}
		section, key, _ := strings.Cut(path, ".")
		if one[section] == nil {
			one[section] = map[string]any{}
		}
		text := sample(v)
		var value any = text
		if words := regexp.MustCompile(`^[0-9]+ to [0-9]+$`); words.MatchString(v.Allowed(plain)) {
			value = json.Number(text)
		} else if pair, value2, found := strings.Cut(text, "="); found && name == "SIDECAR_QUEUE_ARGUMENTS" {
			value = map[string]any{pair: value2}
		} else if strings.HasSuffix(key, "Headers") {
			value = []string{text}
		}
		one[section].(map[string]any)[key] = value
		want["SIDECAR_SUB_ORDER_LINES_"+strings.TrimPrefix(name, "SIDECAR_")] = text
	}
	env := rendered(t, map[string]any{"subscriptions": map[string]any{"order-lines": one}})
	for name, text := range want {
		if env[name] != text {
			t.Errorf("%s is %q, want %q", name, env[name], text)
		}
	}
	for name := range env {
		if strings.HasPrefix(name, "SIDECAR_SUB_") && want[name] == "" {
			t.Errorf("%s cannot be set for one subscription", name)
		}
	}
	if len(want) < 35 {
		t.Errorf("only %d values", len(want))
	}
	for name, path := range typed { // what bounds all of them is unknown below one
		section, key, _ := strings.Cut(path.(string), ".")
		if one[section] == nil || variables()[name].Scoped {
			continue
		}
		flag := map[bool]string{true: "--set", false: "--set-string"}[name == "SIDECAR_MAX_CONCURRENCY"]
		message := refuses(t, helm3, append([]string{flag, "subscriptions.a." + path.(string) + "=" + sample(variables()[name])}, twoValues...)...)
		if !strings.Contains(message, "- subscriptions.a."+section+"."+key+": unknown key") {
			t.Errorf("%s: %s", path, message)
		}
	}
}

// TestSubscriptionsWithoutSettings: the names alone, in their order, and nothing for one that is not there.
func TestSubscriptionsWithoutSettings(t *testing.T) {
	t.Parallel()
	env := rendered(t, map[string]any{
		"app": map[string]any{"port": 3000}, "topology": map[string]any{"preset": "topic-tiers"},
		"subscriptions": map[string]any{"user": map[string]any{}, "order": map[string]any{}, "b-2": map[string]any{"app": map[string]any{"path": "/b"}}},
	})
	own := slices.DeleteFunc(must.Get(json.Marshal(env))(t), func(b byte) bool { return b == 0 })
	if env["SIDECAR_SUBSCRIPTIONS"] != "b-2,order,user" || env["SIDECAR_SUB_B_2_APP_URL"] != "http://127.0.0.1:3000/b" ||
		strings.Count(string(own), "SIDECAR_SUB_") != 1 {
		t.Errorf("%s", own)
	}
	if env := rendered(t, nil); env["SIDECAR_SUBSCRIPTIONS"] != "" {
		t.Errorf("%v", env)
	}
}

// TestTheMigrationKnowsSubscriptions: the Job reads the names of the topology as the sidecar does.
func TestTheMigrationKnowsSubscriptions(t *testing.T) {
	t.Parallel()
	args := append([]string{
		"--set", "outbox.existingSecret=db,outbox.migrate.enabled=true,sidecar.service=wms-cincout,topology.preset=per-queue",
		"--set-json", `subscriptions={"orders": {"topology": {"bindings": ["domain.events:order.#"]}}, "order-lines": {"app": {"path": "/lines"},
			"flow": {"concurrency": 2, "orderBy": "routing-key"}, "topology": {"partitions": 2, "bindings": ["domain.events:line.#"]}}}`,
	}, twoValues...)
	job := sidecar(t, pod(find(t, template(t, helm4, chart, args...), "Job")))
	names := map[string]bool{}
	for i := range job.at("env").([]any) {
		names[job.text("env", i, "name")] = true
	}
	for name, want := range map[string]bool{
		"SIDECAR_SUBSCRIPTIONS": true, "SIDECAR_SUB_ORDER_LINES_PARTITIONS": true, "SIDECAR_SUB_ORDER_LINES_ORDER_BY": true,
		"SIDECAR_SUB_ORDER_LINES_APP_URL": false, "SIDECAR_SUB_ORDER_LINES_CONCURRENCY": false,
	} {
		if names[name] != want {
			t.Errorf("%s is there: %v", name, names[name])
		}
	}
	if _, err := ask(environment(t, job), "plan"); err != nil {
		t.Error(err)
	}
}

// TestDocumentedEnvironments: the sidecar takes the variables that pages and the second compose file show for subscriptions.
func TestDocumentedEnvironments(t *testing.T) {
	t.Parallel()
	variable := regexp.MustCompile(`(?m)^ +(SIDECAR_[A-Z_]+): "?([^"\n]*?)"?$`)
	for file, more := range map[string]string{
		"deploy/inject/README.md": "SIDECAR_SERVICE=orders-billing", "deploy/compose/subscriptions.yml": "SIDECAR_SERVICE=demo-orders",
	} {
		found := false
		for block := range strings.SplitSeq(read(t, filepath.Join(root, file)), "```") {
			if !strings.Contains(block, "SIDECAR_SUBSCRIPTIONS:") {
				continue
			}
			environ := []string{more}
			for _, m := range variable.FindAllStringSubmatch(block, -1) {
				environ = append(environ, m[1]+"="+m[2])
			}
			out, err := ask(environ, "config")
			if found = true; err != nil || len(environ) < 5 || !strings.Contains(out, "orders,refunds") {
				t.Errorf("%s: %v\n%v\n%s", file, err, environ, out)
			}
		}
		if !found {
			t.Errorf("%s shows none", file)
		}
	}
}

// TestExampleOfSubscriptions: the sidecar takes the values that examples/kubernetes has for several queues.
func TestExampleOfSubscriptions(t *testing.T) {
	t.Parallel()
	values := filepath.Join(root, "examples/kubernetes")
	d := find(t, template(t, helm4, chart, "-f", filepath.Join(values, "values.yaml"), "-f", filepath.Join(values, "subscriptions.yaml")), "Deployment")
	environ := environment(t, sidecar(t, pod(d)))
	if _, err := ask(environ, "config"); err != nil || !slices.Contains(environ, "SIDECAR_SUBSCRIPTIONS=orders,refunds") {
		t.Errorf("%v\n%v", err, environ)
	}
}
