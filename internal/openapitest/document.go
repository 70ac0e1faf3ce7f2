// Package openapitest checks requests and answers against an OpenAPI 3.1 document. For tests only. It supports as
// much of OpenAPI as our document uses: JSON bodies, parameters in path and query, answers by exact status or default.
package openapitest

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"sidecar/internal/testkit/must"
)

// Document is an OpenAPI document that can be checked against, by several goroutines.
type Document struct {
	mu       sync.Mutex
	root     map[string]any
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema // by pointer
}

const resource = "memory:///openapi.json"

// Load reads a document and fails the test unless every reference in it leads somewhere, every schema is one, every
// path parameter is declared and every operation has an id of its own.
func Load(t testing.TB, text []byte) *Document {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("the OpenAPI document: %v", err)
	}
	root, ok := v.(map[string]any)
	if !ok || root["openapi"] != "3.1.0" {
		t.Fatal("the document is not of OpenAPI 3.1.0")
	}
	d := &Document{root: root, compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}}
	d.compiler.AssertFormat()
	must.Do(t, d.compiler.AddResource(resource, v))
	d.verify(t)
	return d
}

// Operations are all methods and paths, "GET /status", in order.
func (d *Document) Operations() []string {
	var all []string
	for path, item := range d.object("/paths") {
		for method := range item.(map[string]any) {
			all = append(all, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(all)
	return all
}

func (d *Document) verify(t testing.TB) {
	t.Helper()
	d.references(t, d.root)
	ids := map[string]bool{}
	for path, item := range d.object("/paths") {
		for method, v := range item.(map[string]any) {
			where := pointer("paths", path, method)
			op := v.(map[string]any)
			if id, _ := op["operationId"].(string); id == "" || ids[id] {
				t.Errorf("%s has no operationId of its own", where)
			} else {
				ids[id] = true
			}
			var inPath []string
			for _, p := range d.parameters(where) {
				if p.in == "path" {
					inPath = append(inPath, "{"+p.name+"}")
				}
				d.schema(t, p.schema)
			}
			wanted := slices.DeleteFunc(strings.Split(path, "/"), func(s string) bool { return !isParameter(s) })
			if !slices.Equal(inPath, wanted) {
				t.Errorf("%s declares %v, its path has %v", where, inPath, wanted)
			}
			responses := d.object(where + "/responses")
			if responses["default"] == nil {
				t.Errorf("%s has no default response", where)
			}
			for status := range responses {
				r := d.follow(where + pointer("responses", status))
				if d.object(r)["description"] == nil {
					t.Errorf("%s has no description", r)
				}
			}
		}
	}
	for name := range d.object("/components/schemas") {
		d.schema(t, pointer("components", "schemas", name))
	}
}

func (d *Document) references(t testing.TB, v any) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok && d.at(strings.TrimPrefix(ref, "#")) == nil {
			t.Errorf("%s leads nowhere", ref)
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			d.references(t, v[key])
		}
	case []any:
		for _, e := range v {
			d.references(t, e)
		}
	}
}

// Schema fails the test when a JSON text is not what one of components/schemas says.
func (d *Document) Schema(t testing.TB, name string, text []byte) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.validate(t, pointer("components", "schemas", name), text); err != nil {
		t.Errorf("%.300s\nis no %s: %v", text, name, err)
	}
}

func (d *Document) validate(t testing.TB, at string, text []byte) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return d.schema(t, at).Validate(v)
}

func (d *Document) schema(t testing.TB, at string) *jsonschema.Schema {
	t.Helper()
	if s := d.schemas[at]; s != nil {
		return s
	}
	s, err := d.compiler.Compile(resource + "#" + at)
	if err != nil {
		t.Fatalf("schema %s: %v", at, err)
	}
	d.schemas[at] = s
	return s
}

// pointer is a JSON pointer.
func pointer(tokens ...string) string {
	var b strings.Builder
	for _, s := range tokens {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(s))
	}
	return b.String()
}

// at returns what a pointer leads to, nil when that is nothing.
func (d *Document) at(at string) any {
	var v any = d.root
	for _, token := range strings.Split(at, "/")[1:] {
		switch in := v.(type) {
		case map[string]any:
			v = in[strings.NewReplacer("~1", "/", "~0", "~", "%7B", "{", "%7D", "}").Replace(token)]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}

// follow is the pointer behind a reference, or at itself.
func (d *Document) follow(at string) string {
	m, _ := d.at(at).(map[string]any)
	if ref, ok := m["$ref"].(string); ok {
		return strings.TrimPrefix(ref, "#")
	}
	return at
}

func (d *Document) object(at string) map[string]any {
	m, _ := d.at(d.follow(at)).(map[string]any)
	return m
}

type parameter struct {
	name, in, schema, kind string
	required               bool
}

func (d *Document) parameters(operation string) []parameter {
	list, _ := d.object(operation)["parameters"].([]any)
	all := make([]parameter, 0, len(list))
	for i := range list {
		at := d.follow(operation + pointer("parameters", strconv.Itoa(i)))
		m, schema := d.object(at), at+"/schema"
		p := parameter{schema: schema}
		p.name, _ = m["name"].(string)
		p.in, _ = m["in"].(string)
		p.required, _ = m["required"].(bool)
		p.kind, _ = d.object(schema)["type"].(string)
		all = append(all, p)
	}
	return all
}

func isParameter(segment string) bool {
	return strings.HasPrefix(segment, "{") && strings.HasSuffix(segment, "}")
}
