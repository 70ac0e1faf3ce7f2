//go:build charts

package charts

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/config"
)

// beside are values that a variable needs beside it to be possible at all.
var beside = map[string]string{
	"SIDECAR_MESSAGE_TTL": "dead-letter", "SIDECAR_DEAD_LETTER": "dead-letter",
}

// sample is a text that the sidecar takes for a variable.
func sample(v *config.Variable) string {
	texts := map[string]string{
		"SIDECAR_APP_URL": "http://127.0.0.1:3000/events", "SIDECAR_BINDINGS": "orders.main-exchange:a", "SIDECAR_ADMIN_ADDR": ":9190",
		"SIDECAR_CONTROL_ADDR": "127.0.0.1:9191", "SIDECAR_PARK_ON_STATUS": "400,422", "SIDECAR_SPOOL_DIR": "/tmp/spool",
		"SIDECAR_APP_HEALTH_PATH": "/healthz", "SIDECAR_AMQP_URL": "amqps://rabbit/", "OTEL_TRACES_SAMPLER_ARG": "0.5",
		"SIDECAR_PREFETCH": "10", "SIDECAR_MAX_CONCURRENCY": "20", "SIDECAR_ROUTES": "order.created=/orders", "SIDECAR_MAX_BODY": "1MiB", "SIDECAR_MEMORY": "64MiB", "SIDECAR_RETRY_DELAYS": "1s,5s",
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "SIDECAR_SHUTDOWN_GRACE": "20s", "SIDECAR_RETRY_AFTER_MAX": "1m",
		"SIDECAR_DEAD_LETTER": "disabled", "SIDECAR_REQUEUE_DELAY_MAX": "2s", "SIDECAR_EXCHANGE_TYPE": "topic",
		"SIDECAR_MAX_RETRIES": "2", "OTEL_TRACES_SAMPLER": "always_on",
		"SIDECAR_PUBLISH_ADDR": "127.0.0.1:9192", "SIDECAR_PUBLISH_EXCHANGES": "audit=audit.events", "SIDECAR_OUTBOX_COLUMNS": "body=payload",
		"SIDECAR_QUEUE_ARGUMENTS": "x-max-priority=10", "SIDECAR_RETRY_DELAY": "5s", "SIDECAR_MESSAGE_TTL": "1h", "SIDECAR_OUTBOX_RETENTION": "24h",
		"SIDECAR_RATE_LIMIT": "100/s",
	}
	if text := texts[v.Name]; text != "" {
		return text
	}
	if words := words(v); words != nil {
		return words[0]
	}
	if text := v.Tag.Get("envDefault"); regexp.MustCompile(`^[0-9]+[a-zA-Z]*$`).MatchString(text) {
		return text
	}
	return "text"
}

// TestEveryVariableByExtraEnv: there is no variable that only a value can set.
func TestEveryVariableByExtraEnv(t *testing.T) {
	t.Parallel()
	variables := variables()
	for name := range maps.Keys(variables) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := sample(variables[name])
			args := []string{"--set", "app.image.repository=app,app.image.tag=1", extraEnv(t, name, text)}
			if name != "SIDECAR_AMQP_URL" {
				args = append(args, "--set", "broker.existingSecret=broker")
			}
			if preset := beside[name]; preset != "" {
				args = append(args, "--set", "topology.preset="+preset, "--set", "topology.queue=q", "--set", "topology.bindings={orders:a}")
			}
			c := sidecar(t, pod(find(t, template(t, helm3, chart, args...), "Deployment")))
			if value := env(t, c)[name]; value != text {
				t.Errorf("it is %q, not %q", value, text)
			}
		})
	}
}

// TestAValueAndItsVariable cannot both be set, for every value.
func TestAValueAndItsVariable(t *testing.T) {
	t.Parallel()
	variables := variables()
	for name, path := range typedValues(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := path.(string)
			text := sample(variables[name])
			set := "--set-string=" + path + "=" + strings.ReplaceAll(text, ",", "\\,")
			switch {
			case path == "tracing.resourceAttributes":
				set, text = "--set="+path+".a=b", "a=b"
			case path == "publish.exchanges" || path == "outbox.columns" || path == "topology.queueArguments":
				set = "--set=" + path + "." + text
			case path == "topology.retryDelays" || path == "publish.routingKeys" || path == "topology.bindings" || path == "dispatch.parkOnStatus":
			case regexp.MustCompile(`^[0-9]+ to [0-9]+(, or auto)?$`).MatchString(variables[name].Allowed(plain)):
				set = "--set=" + path + "=" + text
			case strings.HasSuffix(path, "Headers"):
				set = "--set=" + path + "={" + text + "}"
			}
			args := append([]string{set, extraEnv(t, name, text)}, twoValues...)
			want := "- extraEnv " + name + ": " + path + " sets " + name + " already"
			if message := refuses(t, helm3, args...); !strings.Contains(message, want) {
				t.Errorf("not said: %s\n%s", want, message)
			}
		})
	}
}

// rendered is the environment of the chart's sidecar with values, by name.
func rendered(t *testing.T, values map[string]any) map[string]string {
	t.Helper()
	args := append([]string{"-f", valuesFile(t, values)}, twoValues...)
	return env(t, sidecar(t, pod(find(t, template(t, helm3, chart, args...), "Deployment"))))
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
		text := sample(v)
		var value any = text
		if words := regexp.MustCompile(`^[0-9]+ to [0-9]+(, or auto)?$`); words.MatchString(v.Allowed(plain)) {
			value = json.Number(text)
		} else if pair, value2, found := strings.Cut(text, "="); found && name == "SIDECAR_QUEUE_ARGUMENTS" {
			value = map[string]any{pair: value2}
		} else if strings.HasSuffix(path, "Headers") {
			value = []string{text}
		}
		set(one, path, value)
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
	own := slices.DeleteFunc(slices.Collect(maps.Keys(env)), func(name string) bool { return !strings.HasPrefix(name, "SIDECAR_SUB_") })
	if env["SIDECAR_SUBSCRIPTIONS"] != "b-2,order,user" || env["SIDECAR_SUB_B_2_APP_URL"] != "http://127.0.0.1:3000/b" || len(own) != 1 {
		t.Errorf("%v", env)
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
			"flow": {"concurrency": 2, "orderBy": "routing-key"}, "topology": {"bindings": ["domain.events:line.#"]}}}`,
	}, twoValues...)
	job := sidecar(t, pod(find(t, template(t, helm4, chart, args...), "Job")))
	names := env(t, job)
	for name, want := range map[string]bool{
		"SIDECAR_SUBSCRIPTIONS": true, "SIDECAR_SUB_ORDER_LINES_ORDER_BY": true,
		"SIDECAR_SUB_ORDER_LINES_APP_URL": false, "SIDECAR_SUB_ORDER_LINES_CONCURRENCY": false,
	} {
		if _, found := names[name]; found != want {
			t.Errorf("%s is there: %v", name, found)
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
			if found = true; err != nil || len(environ) < 5 || !strings.Contains(out, "refund") {
				t.Errorf("%s: %v\n%v\n%s", file, err, environ, out)
			}
		}
		if !found {
			t.Errorf("%s shows none", file)
		}
	}
}
