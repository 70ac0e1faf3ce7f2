//go:build charts

package charts

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/config"
	"sidecar/internal/testkit/must"
)

// block is the content of a named template that holds a YAML map.
func block(t *testing.T, file, name string) object {
	t.Helper()
	_, rest, found := strings.Cut(read(t, file), `define "`+name+`" -}}`+"\n")
	text, _, ended := strings.Cut(rest, "{{- end -}}")
	if !found || !ended {
		t.Fatalf("%s has no template %s", file, name)
	}
	return parse(t, []string{text})[0]
}

// variables are those of the sidecar, and of the file variants, by their names.
func variables() map[string]*config.Variable {
	all := map[string]*config.Variable{}
	for _, section := range config.Describe() {
		for _, v := range section.Variables {
			all[v.Name] = v
		}
	}
	return all
}

// plain leaves a literal value as it is.
func plain(text string) string { return text }

// words are all that a variable may be; nil where that is not a list.
func words(v *config.Variable) []string {
	if v == nil || !regexp.MustCompile(`^[a-z-]+(, [a-z-]+)+$`).MatchString(v.Allowed(plain)) {
		return nil
	}
	return strings.Split(v.Allowed(plain), ", ")
}

func typedValues(t *testing.T) object {
	t.Helper()
	return block(t, filepath.Join(library, "templates/_env.tpl"), "amqp-sidecar-lib.typed")
}

// TestSchemaHasEveryValue compares values.yaml with the schema, both ways, and the schema's words with those of the
// sidecar.
func TestSchemaHasEveryValue(t *testing.T) {
	t.Parallel()
	var schema object
	must.Do(t, json.Unmarshal([]byte(read(t, filepath.Join(chart, "values.schema.json"))), &schema))
	same(t, "", parse(t, []string{read(t, filepath.Join(chart, "values.yaml"))})[0], schema)
	for variable, path := range typedValues(t) {
		words := words(variables()[variable])
		if words == nil {
			continue
		}
		at := []any{}
		for p := range strings.SplitSeq(path.(string), ".") {
			at = append(at, "properties", p)
		}
		allowed, _ := schema.at(append(at, "enum")...).([]any)
		allowed = slices.DeleteFunc(slices.Clone(allowed), func(v any) bool { return v == "" || v == false })
		if fmt.Sprint(allowed) != fmt.Sprint(words) {
			t.Errorf("%s: the schema allows %v, the sidecar %v", path, allowed, words)
		}
	}
}

func same(t *testing.T, path string, values, schema object) {
	t.Helper()
	if schema.at("additionalProperties") != nil {
		t.Errorf("%s: the schema says something about unknown keys, and the templates cannot say what is meant", path)
	}
	known, _ := schema.at("properties").(map[string]any)
	for key := range known {
		own := path == "" && slices.Contains([]string{"global", "enabled", "amqp-sidecar-lib"}, key)
		if _, found := values[key]; !found && !own {
			t.Errorf("%s.%s is in the schema and not in values.yaml", path, key)
		}
	}
	for key, value := range values {
		if known[key] == nil {
			t.Errorf("%s.%s is in values.yaml and not in the schema", path, key)
			continue
		}
		inner, _ := known[key].(map[string]any)
		if m, isMap := value.(map[string]any); isMap && inner["properties"] != nil {
			same(t, path+"."+key, m, inner)
		}
	}
}

// TestEveryUnknownKeyIsNamed: a key with a letter too much is refused in every section, with the key that is meant.
func TestEveryUnknownKeyIsNamed(t *testing.T) {
	t.Parallel()
	values := parse(t, []string{read(t, filepath.Join(chart, "values.yaml"))})[0]
	wrong, want := misspelt("", values)
	message := refuses(t, helm3, append(slices.Clone(twoValues), "-f", valuesFile(t, wrong))...)
	for _, path := range want {
		if line := "- " + path + "x: unknown key. Did you mean " + path + "?\n"; !strings.Contains(message, line) {
			t.Errorf("not said: %s", line)
		}
	}
	if len(want) < 200 {
		t.Errorf("only %d keys", len(want))
	}
}

// misspelt returns the sections of m with every key misspelt, and the right paths. What Kubernetes reads is not ours.
func misspelt(path string, m map[string]any) (wrong map[string]any, paths []string) {
	wrong = map[string]any{}
	for key, v := range m {
		at := strings.TrimPrefix(path+"."+key, ".")
		wrong[key+"x"], paths = "", append(paths, at)
		inner, isMap := v.(map[string]any)
		foreign := []string{"sidecar.resources.requests", "sidecar.resources.limits", "sidecar.securityContext", "metrics.dashboard.labels"}
		if isMap && len(inner) > 0 && !slices.Contains(foreign, at) {
			below, more := misspelt(at, inner)
			wrong[key], paths = below, append(paths, more...)
		}
	}
	return wrong, paths
}

// TestCommentsNameTheVariables: every value that sets a variable says so.
func TestCommentsNameTheVariables(t *testing.T) {
	t.Parallel()
	page := read(t, filepath.Join(chart, "README.md"))
	for variable, path := range typedValues(t) {
		if !regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(path.(string)) + "` \\|.*`" + variable + "`").MatchString(page) {
			t.Errorf("%s does not say that it sets %s", path, variable)
		}
	}
}

// TestDefaultsAgree: the default for a null is that of values.yaml, key by key, in the chart and in the library.
func TestDefaultsAgree(t *testing.T) {
	t.Parallel()
	values := parse(t, []string{read(t, filepath.Join(chart, "values.yaml"))})[0]
	own := block(t, filepath.Join(chart, "templates/_defaults.tpl"), "amqp-sidecar.defaults")
	shared := block(t, filepath.Join(library, "templates/_values.tpl"), "amqp-sidecar-lib.defaults")
	for path, v := range leaves(values, nil) {
		section, _, _ := strings.Cut(path, ".")
		keys := []any{}
		for key := range strings.SplitSeq(path, ".") {
			keys = append(keys, key)
		}
		known := false
		for _, defaults := range []object{own, shared} {
			parent, _ := defaults.at(keys[:len(keys)-1]...).(map[string]any)
			d, found := parent[keys[len(keys)-1].(string)]
			known = known || found
			if found && !reflect.DeepEqual(d, v) {
				t.Errorf("%s: %v in the templates, %v in values.yaml", path, d, v)
			}
		}
		// What is empty may be left out of a section of the library's.
		if _, inLibrary := shared[section]; !known && (!inLibrary || v != nil && v != "" && reflect.ValueOf(v).Len() != 0) {
			t.Errorf("%s: the templates have no default for it", path)
		}
	}
	for _, defaults := range []object{own, shared} {
		for path := range leaves(defaults, nil) {
			if _, found := leaves(values, nil)[path]; !found && path != "topology" && path != "dispatch" && path != "flow" {
				t.Errorf("%s has a default and is not in values.yaml", path)
			}
		}
	}
}

// leaves are the values in a map by their path; an empty map is one.
func leaves(m map[string]any, path []string) map[string]any {
	all := map[string]any{}
	for key, v := range m {
		at := append(slices.Clone(path), key)
		if inner, isMap := v.(map[string]any); isMap && len(inner) > 0 {
			maps.Copy(all, leaves(inner, at))
			continue
		}
		all[strings.Join(at, ".")] = v
	}
	return all
}

// TestEveryValueMayBeNull: null is as if a key had not been set, be it all keys of values.yaml at once or a section
// alone.
func TestEveryValueMayBeNull(t *testing.T) {
	t.Parallel()
	values := parse(t, []string{read(t, filepath.Join(chart, "values.yaml"))})[0]
	render := func(t *testing.T, null []string, more ...string) (string, error) {
		t.Helper()
		args := append([]string{"template", release, chart, "--kube-version", kubernetes}, more...)
		for _, path := range null {
			args = append(args, "--set", path+"=null")
		}
		return run(helm3, args...)
	}
	usual := must.Get(render(t, nil, twoValues...))(t)
	required := []string{"app", "app.image", "app.image.repository", "broker", "broker.existingSecret"}
	all := slices.DeleteFunc(slices.Collect(maps.Keys(leaves(values, nil))), func(path string) bool {
		return slices.Contains(required, path) || path == "app.image.tag" // which is among the two values
	})
	if out, err := render(t, all, twoValues...); err != nil || out != usual {
		t.Errorf("all at once: %v\n%s", err, out)
	}
	for _, path := range append(slices.Collect(maps.Keys(values)), required...) {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			out, err := render(t, []string{path}, twoValues...)
			switch {
			case slices.Contains(required, path):
				if section, _, _ := strings.Cut(path, "."); err == nil || !strings.Contains(err.Error(), "\n- "+section) {
					t.Errorf("it is required, and there is %v", err)
				}
			case err != nil:
				t.Error(err)
			case out != usual:
				t.Errorf("not as without it:\n%s", out)
			}
			if _, err := render(t, []string{path}, "-f", filepath.Join(chart, "ci/full-values.yaml")); err != nil && !strings.Contains(err.Error(), "\n- ") {
				t.Error(err)
			}
		})
	}
}

// beside are values that a variable needs beside it to be possible at all.
var beside = map[string]string{
	"SIDECAR_MESSAGE_TTL": "dead-letter", "SIDECAR_DEAD_LETTER": "dead-letter",
}

// sample is a text that the sidecar takes for a variable.
func sample(v *config.Variable) string {
	texts := map[string]string{
		"SIDECAR_APP_URL": "http://127.0.0.1:3000/events", "SIDECAR_BINDINGS": "orders.main-exchange:a", "SIDECAR_ADMIN_ADDR": ":9190",
		"SIDECAR_CONTROL_ADDR": "127.0.0.1:9191", "SIDECAR_PARK_ON_STATUS": "400,422", "SIDECAR_CRASH_DIR": "/tmp/crash", "SIDECAR_SPOOL_DIR": "/tmp/spool",
		"SIDECAR_APP_HEALTH_PATH": "/healthz", "SIDECAR_AMQP_URL": "amqps://rabbit/", "OTEL_TRACES_SAMPLER_ARG": "0.5",
		"SIDECAR_PREFETCH": "10", "SIDECAR_MAX_CONCURRENCY": "20", "SIDECAR_PARTITIONS": "8", "SIDECAR_ROUTES": "order.created=/orders", "SIDECAR_MAX_BODY": "1MiB", "SIDECAR_MEMORY": "64MiB", "SIDECAR_RETRY_DELAYS": "1s,5s", "SIDECAR_AMQP_SASL": "plain",
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/", "SIDECAR_SHUTDOWN_GRACE": "20s", "SIDECAR_RETRY_AFTER_MAX": "1m",
		"SIDECAR_DEAD_LETTER": "disabled", "SIDECAR_REQUEUE_DELAY_MAX": "2s", "SIDECAR_EXCHANGE_TYPE": "topic",
		"SIDECAR_MAX_RETRIES": "2", "OTEL_TRACES_SAMPLER": "always_on",
		"SIDECAR_PUBLISH_ADDR": "127.0.0.1:9192", "SIDECAR_PUBLISH_EXCHANGES": "audit=audit.events", "SIDECAR_OUTBOX_COLUMNS": "body=payload",
		"SIDECAR_QUEUE_ARGUMENTS": "x-max-priority=10",
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
			found := 0
			for i := range c.at("env").([]any) {
				if c.text("env", i, "name") == name {
					found++
					if c.text("env", i, "value") != text {
						t.Errorf("%v", c.at("env", i))
					}
				}
			}
			if found != 1 {
				t.Errorf("it is there %d times", found)
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
			case regexp.MustCompile(`^[0-9]+ to [0-9]+$`).MatchString(variables[name].Allowed(plain)):
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
