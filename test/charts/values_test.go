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
)

// block is what stands in a named template of the library, which holds a YAML map.
func block(t *testing.T, file, name string) object {
	t.Helper()
	_, rest, found := strings.Cut(read(t, filepath.Join(library, "templates", file)), `define "amqp-sidecar-lib.`+name+`" -}}`+"\n")
	text, _, ended := strings.Cut(rest, "{{- end -}}")
	if !found || !ended {
		t.Fatalf("%s has no template %s", file, name)
	}
	return parse(t, []string{text})[0]
}

// TestSchemaKnowsEveryValue compares values.yaml with the schema, both ways, and the schema's words with those of the sidecar.
func TestSchemaKnowsEveryValue(t *testing.T) {
	var schema object
	if err := json.Unmarshal([]byte(read(t, filepath.Join(chart, "values.schema.json"))), &schema); err != nil {
		t.Fatal(err)
	}
	same(t, "", parse(t, []string{read(t, filepath.Join(chart, "values.yaml"))})[0], schema)
	variables := block(t, "_variables.tpl", "variables")
	for variable, path := range block(t, "_env.tpl", "typed") {
		words, _ := variables.at(variable, "words").([]any)
		if words == nil {
			continue
		}
		at := []any{}
		for p := range strings.SplitSeq(path.(string), ".") {
			at = append(at, "properties", p)
		}
		allowed, _ := schema.at(append(at, "enum")...).([]any)
		allowed = slices.DeleteFunc(slices.Clone(allowed), func(v any) bool { return v == "" || v == false })
		if !slices.Equal(allowed, words) {
			t.Errorf("%s: the schema allows %v, the sidecar %v", path, allowed, words)
		}
	}
}

func same(t *testing.T, path string, values, schema object) {
	t.Helper()
	if schema.at("additionalProperties") != false {
		t.Errorf("%s: the schema lets unknown keys pass", path)
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

// TestCommentsNameTheVariables: every value that sets a variable says so.
func TestCommentsNameTheVariables(t *testing.T) {
	page := read(t, filepath.Join(chart, "README.md"))
	for variable, path := range block(t, "_env.tpl", "typed") {
		if !regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(path.(string)) + "` \\|.*`" + variable + "`").MatchString(page) {
			t.Errorf("%s does not say that it sets %s", path, variable)
		}
	}
}

// TestDefaultsAgree: what the library takes for granted is what the chart's values say.
func TestDefaultsAgree(t *testing.T) {
	values := parse(t, []string{read(t, filepath.Join(chart, "values.yaml"))})[0]
	var compare func(path []any, v any)
	compare = func(path []any, v any) {
		if m, isMap := v.(map[string]any); isMap {
			for key, inner := range m {
				compare(append(slices.Clone(path), key), inner)
			}
			return
		}
		a, _ := json.Marshal(v)
		b, _ := json.Marshal(values.at(path...))
		if string(a) != string(b) {
			t.Errorf("%v: %s in the library, %s in values.yaml", path, a, b)
		}
	}
	compare(nil, map[string]any(block(t, "_values.tpl", "defaults")))
}

// beside are values that a variable needs beside it to be possible at all.
var beside = map[string]string{
	"SIDECAR_MESSAGE_TTL": "dead-letter", "SIDECAR_DEAD_LETTER": "dead-letter",
}

// sample is a text that the sidecar takes for a variable.
func sample(name string, rule object) string {
	texts := map[string]string{
		"SIDECAR_APP_URL": "http://127.0.0.1:3000/events", "SIDECAR_BINDINGS": "orders.main-exchange:a", "SIDECAR_ADMIN_ADDR": ":9190",
		"SIDECAR_CONTROL_ADDR": "127.0.0.1:9191", "SIDECAR_PARK_ON_STATUS": "400,422", "SIDECAR_CRASH_DIR": "/tmp/crash",
		"SIDECAR_APP_HEALTH_PATH": "/healthz", "SIDECAR_AMQP_URL": "amqps://rabbit/", "OTEL_TRACES_SAMPLER_ARG": "0.5",
		"SIDECAR_PREFETCH": "10", "SIDECAR_MAX_BODY": "1MiB", "SIDECAR_RETRY_DELAYS": "1s,5s", "SIDECAR_AMQP_SASL": "plain",
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "SIDECAR_SHUTDOWN_GRACE": "20s", "SIDECAR_RETRY_AFTER_MAX": "1m",
		"SIDECAR_DEAD_LETTER": "disabled", "SIDECAR_REQUEUE_DELAY_MAX": "2s", "SIDECAR_EXCHANGE_TYPE": "topic",
	}
	if text := texts[name]; text != "" {
		return text
	}
	if words, _ := rule["words"].([]any); len(words) > 0 {
		return words[0].(string)
	}
	if rule.text("low") != "" {
		return rule.text("low")
	}
	return "text"
}

// TestEveryVariableByExtraEnv: there is no variable that only a value can set.
func TestEveryVariableByExtraEnv(t *testing.T) {
	variables := block(t, "_variables.tpl", "variables")
	for name := range maps.Keys(variables) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := sample(name, variables[name].(map[string]any))
			extra, err := json.Marshal([]map[string]string{{"name": name, "value": text}})
			if err != nil {
				t.Fatal(err)
			}
			args := []string{"--set", "app.image=app:1", "--set-json", "extraEnv=" + string(extra)}
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
	variables := block(t, "_variables.tpl", "variables")
	for name, path := range block(t, "_env.tpl", "typed") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := path.(string)
			rule, _ := variables[name].(map[string]any)
			text := sample(name, rule)
			set := "--set-string=" + path + "=" + strings.ReplaceAll(text, ",", "\\,")
			switch {
			case path == "tracing.resourceAttributes":
				set, text = "--set="+path+".a=b", "a=b"
			case path == "topology.retryDelays" || path == "topology.bindings" || path == "dispatch.parkOnStatus":
			case object(rule).text("kind") == "number" || name == "SIDECAR_PREFETCH":
				set = "--set=" + path + "=" + text
			case strings.HasSuffix(path, "Headers"):
				set = "--set=" + path + "={" + text + "}"
			}
			extra, err := json.Marshal([]map[string]string{{"name": name, "value": text}})
			if err != nil {
				t.Fatal(err)
			}
			args := append([]string{set, "--set-json", "extraEnv=" + string(extra)}, twoValues...)
			want := "- extraEnv " + name + ": " + path + " sets " + name + " already"
			if message := refuses(t, helm3, args...); !strings.Contains(message, want) {
				t.Errorf("not said: %s\n%s", want, message)
			}
		})
	}
}
