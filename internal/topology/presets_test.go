package topology

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"sidecar/internal/testkit/must"
)

// TestPresetsFollowTheirOptions: what each option changes in the text of a plan. TestPresetsToTheLetter has the defaults.
func TestPresetsFollowTheirOptions(t *testing.T) {
	t.Parallel()
	second := []time.Duration{time.Second}
	bound := func(all ...Binding) []Binding { return all }
	var text strings.Builder
	for _, c := range []struct {
		name string
		o    Options
	}{
		{"prefix", Options{Service: "a-b", Prefix: "p"}},
		{"exchange", Options{Service: "a-b", Exchange: "x"}},
		{"exchange type", Options{Service: "a-b", ExchangeType: "topic"}},
		{"queue", Options{Service: "a-b", Queue: "q"}},
		{"retry exchange", Options{Service: "a-b", RetryExchange: "r"}},
		{"retry queue", Options{Service: "a-b", RetryQueue: "r"}},
		{"retry queue of tiers", Options{Service: "a-b", RetryQueue: "r", RetryDelays: second}},
		{"retry queue named like a placeholder", Options{Service: "a-b", RetryQueue: "{dlq}", RetryDelays: second}},
		{"retry delay", Options{Service: "a-b", RetryDelay: time.Minute}},
		{"dead-letter queue", Options{Service: "a-b", DLQ: "d"}},
		{"bindings replace", Options{Service: "a-b", Bindings: bound(Binding{Exchange: "other", Key: "a.*"}, Binding{Exchange: "other", Key: "b"})}},
		{"bindings to the main exchange", Options{Service: "a-b", ExchangeType: "direct", Bindings: bound(Binding{Exchange: "a.main-exchange", Key: "k"})}},
		{"no retries", Options{Service: "a-b", MaxRetries: new(0)}},

		{"the exchange names its retry and dead-letter exchanges", Options{Preset: PresetTopicTiers, Service: "x-y", Exchange: "e"}},
		{"without a hyphen", Options{Preset: PresetTopicTiers, Service: "y"}},
		{"bindings that retries would not match get one more", Options{Preset: PresetTopicTiers, Service: "x-y", Bindings: bound(Binding{Exchange: "x.events", Key: "y.created"})}},
		{"so do bindings to other exchanges", Options{Preset: PresetTopicTiers, Service: "x-y", Bindings: bound(Binding{Exchange: "other", Key: "#"})}},
		{"bindings that they match do not", Options{Preset: PresetTopicTiers, Service: "x-y", Bindings: bound(Binding{Exchange: "x.events", Key: "#"})}},
		{"retries follow the delays", Options{Preset: PresetTopicTiers, Service: "x-y", RetryDelays: second}},
		{"unless they are set", Options{Preset: PresetTopicTiers, Service: "x-y", RetryDelays: second, MaxRetries: new(7)}},
		{"a dead-letter queue of its own", Options{Preset: PresetTopicTiers, Service: "x-y", DLX: "y.dlx", DLQ: "y.dlq"}},

		{"two main exchanges", Options{Preset: PresetPerQueue, Service: "y", Bindings: bound(
			Binding{Exchange: "domain.events", Key: "a"}, Binding{Exchange: "domain.commands", Key: "b"}, Binding{Exchange: "other", Key: "c"})}},
		{"one when it is named", Options{Preset: PresetPerQueue, Service: "y", Exchange: "e", Bindings: bound(
			Binding{Exchange: "e", Key: "a"}, Binding{Exchange: "domain.commands", Key: "b"})}},
		{"names made from the queue", Options{Preset: PresetPerQueue, Service: "y", Queue: "z", Bindings: bound(Binding{Exchange: "domain.events", Key: "#"})}},

		{"delays are named in seconds", Options{Preset: PresetDelayLadder, Service: "x-y", Bindings: bound(Binding{Exchange: "x.events", Key: "#"}),
			RetryDelays: []time.Duration{1500 * time.Millisecond, 5 * time.Minute}}},
		{"exchanges before the delays and the dead-letter queue", Options{Preset: PresetDelayLadder, Service: "x-y",
			Bindings: bound(Binding{Exchange: "x.events", Key: "#"}), RetryExchange: "r", RetryQueue: "w", DLX: "d"}},

		{"tiers without a plain retry queue", Options{Preset: PresetDeadLetter, Service: "x-y", Queue: "q", Bindings: bound(Binding{Exchange: "x", Key: "#"}), RetryDelays: second}},
		{"nothing kept, quorum", Options{Preset: PresetDeadLetter, Service: "x-y", Queue: "q", Bindings: bound(Binding{Exchange: "x", Key: "#"}), NoDeadLetter: true, QueueType: TypeQuorum}},

		{"a limit for each retry", Options{Preset: PresetNative, Service: "x-y", MaxRetries: new(3)}},
		{"a limit without retries", Options{Preset: PresetNative, Service: "x-y", MaxRetries: new(0)}},
	} {
		text.WriteString("== " + c.name + "\n" + build(t, c.o).Text() + "\n")
	}
	golden(t, "plans/options.txt", text.String())
}

// TestPresetFiles: each preset has a file without a problem, and the file of no other one.
func TestPresetFiles(t *testing.T) {
	t.Parallel()
	for name := range shown {
		raw := must.Get(presetFiles.ReadFile("presets/" + name + ".json"))(t)
		d, err := decodeStrict(raw, new(preset))
		must.Do(t, err)
		for _, problem := range d.problems {
			if !strings.Contains(problem.Error(), mainType) { // which is no type of an exchange
				t.Errorf("%s: %v", name, problem)
			}
		}
	}
	if len(presets()) != len(shown) {
		t.Errorf("%d files", len(presets()))
	}
}

// TestLongestDelays: no delay that can be set overflows.
func TestLongestDelays(t *testing.T) {
	t.Parallel()
	p := must.Get(Build(Options{Service: "wms-in", Preset: PresetNative, RetryDelay: maxTTL}))(t)
	if got := p.Delays(); !slices.Equal(got, []time.Duration{maxTTL}) || p.DelayAfter(1<<31-1) != maxTTL {
		t.Errorf("%v, %v", got, p.DelayAfter(1<<31-1))
	}
	p = must.Get(Build(Options{Service: "wms-in", Preset: PresetNative, RetryDelays: []time.Duration{4 * time.Hour, 24 * time.Hour}}))(t)
	if got := p.DelayAfter(1); got != 8*time.Hour {
		t.Errorf("%v", got)
	}
}

// build fails the test when the options are refused.
func build(t testing.TB, o Options) *Plan {
	t.Helper()
	return must.Get(Build(o))(t)
}

func TestNaming(t *testing.T) {
	t.Parallel()
	for service, queue := range map[string]string{
		"a-b-c": "a.queue.a-b-c", "noprefix": "default.queue.noprefix", "trailing-": "trailing.queue.trailing-", "v1.2_x": "default.queue.v1.2_x",
	} {
		if got := build(t, Options{Service: service}).Queue; got != queue {
			t.Errorf("%s consumes %s, want %s", service, got, queue)
		}
	}
}

func TestTierLabel(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		500 * time.Millisecond: "500ms", 1500 * time.Millisecond: "1.5s", 5 * time.Second: "5s", time.Minute: "1m",
		90 * time.Second: "1m30s", 30 * time.Minute: "30m", time.Hour: "1h", 10 * time.Hour: "10h",
		time.Hour + 5*time.Second: "1h0m5s", time.Hour + 10*time.Minute: "1h10m", 10*time.Hour + 5*time.Second: "10h0m5s", 20 * time.Second: "20s",
	} {
		if got := TierLabel(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}

const schemaFile = "../../docs/plan.schema.json"

// TestPlanSchema keeps docs/plan.schema.json equal to the types; -update rewrites it. Every plan that the sidecar prints
// fits it, and files that ParsePlan refuses for their form do not.
func TestPlanSchema(t *testing.T) {
	t.Parallel()
	root := schemaOf(reflect.TypeFor[planFile](), comments(t))
	root["$schema"], root["title"] = "https://json-schema.org/draft/2020-12/schema", "Plan for SIDECAR_PLAN_FILE"
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	must.Do(t, e.Encode(root))
	if *update {
		must.Do(t, os.WriteFile(schemaFile, text.Bytes(), 0o644))
	}
	if string(must.Get(os.ReadFile(schemaFile))(t)) != text.String() {
		t.Errorf("%s is stale: go test ./internal/topology -run TestPlanSchema -update", schemaFile)
	}

	c := jsonschema.NewCompiler()
	must.Do(t, c.AddResource("plan", must.Get(jsonschema.UnmarshalJSON(&text))(t)))
	schema := must.Get(c.Compile("plan"))(t)
	fits := func(file []byte) error {
		return schema.Validate(must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(file)))(t))
	}
	for name, p := range everyPlan(t) {
		if err := fits(must.Get(p.JSON())(t)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, file := range must.Get(filepath.Glob("../../examples/topologies/*/*.json"))(t) {
		if err := fits(must.Get(os.ReadFile(file))(t)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, name := range []string{
		"argument-types", "delay-without-unit", "delays", "empty-object", "fractions", "missing-fields", "missing-lists", "negative-retries",
		"root-is-a-list", "too-many-retries", "unknown-field-of-odd-name", "unknown-fields", "without-park", "words", "wrong-types",
	} {
		if fits(must.Get(os.ReadFile("testdata/brokenplans/"+name+".json"))(t)) == nil {
			t.Errorf("%s: fits", name)
		}
	}
}

// schemaOf is the schema of what strictDecoder reads into a type. The comments are those of the fields, by "Type.Field".
func schemaOf(t reflect.Type, comments map[string]string) map[string]any {
	switch t.Kind() {
	case reflect.Pointer:
		s := schemaOf(t.Elem(), comments)
		s["type"] = []string{"object", "null"}
		return s
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem(), comments)}
	case reflect.Map:
		values := map[string]any{"type": []string{"string", "integer", "boolean"}}
		return map[string]any{"type": "object", "additionalProperties": values}
	case reflect.Int:
		return map[string]any{"type": "integer", "minimum": 0, "maximum": maxRetriesLimit}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int64:
		return map[string]any{"type": "string", "pattern": `^([0-9.]+(h|m|s|ms|us|µs|ns))+$`}
	case reflect.String:
		return map[string]any{"type": "string"}
	}
	properties, required := map[string]any{}, []string{}
	for _, f := range fieldsOf(t) {
		s := schemaOf(f.Type, comments)
		if f.words != nil {
			s["enum"] = f.words
		}
		owner := t
		if len(f.Index) > 1 {
			owner = t.FieldByIndex(f.Index[:len(f.Index)-1]).Type
		}
		s["description"] = comments[owner.Name()+"."+f.Name]
		if properties[f.name] = s; f.required {
			required = append(required, f.name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// comments maps "Type.Field" to the comment above the field, on one line, for the structs of a plan's file.
func comments(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, file := range []string{"plan.go", "planfile.go"} {
		f := must.Get(parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments))(t)
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range s.Fields.List {
					for _, name := range field.Names {
						all[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(field.Doc.Text()), " ")
					}
				}
			}
			return true
		})
	}
	return all
}
