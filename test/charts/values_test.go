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
		key := "enum"
		if path == "topology.preset" {
			key = "examples" // the templates refuse other words
		}
		allowed, _ := schema.at(append(at, key)...).([]any)
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
	wrong, paths := map[string]any{}, []string(nil)
	for path := range nodes(values, "") {
		if !foreign.MatchString(path) {
			set(wrong, path+"x", "")
			paths = append(paths, path)
		}
	}
	message := refuses(t, helm3, append(slices.Clone(twoValues), "-f", valuesFile(t, wrong))...)
	for _, path := range paths {
		if line := "- " + path + "x: unknown key. Did you mean " + path + "?\n"; !strings.Contains(message, line) {
			t.Errorf("not said: %s", line)
		}
	}
	if len(paths) < 200 {
		t.Errorf("only %d keys", len(paths))
	}
}

// foreign matches the keys that Kubernetes or Grafana reads.
var foreign = regexp.MustCompile(`^(sidecar\.resources\.(requests|limits)|sidecar\.securityContext|metrics\.dashboard\.labels)\.`)

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
	for path, v := range leaves(values) {
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
		for path := range leaves(defaults) {
			if _, found := leaves(values)[path]; !found && path != "topology" && path != "dispatch" && path != "flow" {
				t.Errorf("%s has a default and is not in values.yaml", path)
			}
		}
	}
}

// nodes are the values in a map by their path, and the maps among them.
func nodes(m map[string]any, below string) map[string]any {
	all := map[string]any{}
	for key, v := range m {
		path := strings.TrimPrefix(below+"."+key, ".")
		all[path] = v
		if inner, isMap := v.(map[string]any); isMap {
			maps.Copy(all, nodes(inner, path))
		}
	}
	return all
}

// leaves are the values in a map by their path; an empty map is one.
func leaves(m map[string]any) map[string]any {
	all := nodes(m, "")
	maps.DeleteFunc(all, func(_ string, v any) bool { inner, _ := v.(map[string]any); return len(inner) > 0 })
	return all
}

// set makes a value that is found by a path.
func set(m map[string]any, path string, v any) {
	section, rest, nested := strings.Cut(path, ".")
	if !nested {
		m[section] = v
		return
	}
	if m[section] == nil {
		m[section] = map[string]any{}
	}
	set(m[section].(map[string]any), rest, v)
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
	all := slices.DeleteFunc(slices.Collect(maps.Keys(leaves(values))), func(path string) bool {
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
