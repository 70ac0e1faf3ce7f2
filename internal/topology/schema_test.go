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
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"sidecar/internal/testkit/must"
)

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
