//go:build charts

package charts

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"sidecar/internal/testkit/must"
)

// schemas are those of Kubernetes and of the resource definitions, by "group/version kind", strict: in Kubernetes' own
// ones a field that is not known is not an error.
type schemas map[string]*jsonschema.Schema

func readSchemas(t *testing.T) schemas {
	t.Helper()
	var doc struct{ Definitions map[string]any }
	must.Do(t, json.Unmarshal([]byte(read(t, openapi)), &doc))
	c := jsonschema.NewCompiler()
	for name, d := range doc.Definitions {
		doc.Definitions[name] = strict(name, d)
	}
	add := func(url string, v any) {
		must.Do(t, c.AddResource(url, v))
	}
	add("k8s.json", map[string]any{"$schema": "http://json-schema.org/draft-07/schema#", "definitions": doc.Definitions})
	s := schemas{}
	compile := func(key, url string) {
		compiled := must.Get(c.Compile(url))(t)
		s[key] = compiled
	}
	for name, d := range doc.Definitions {
		kinds, _ := object(d.(map[string]any)).at("x-kubernetes-group-version-kind").([]any)
		for _, k := range kinds {
			k := object(k.(map[string]any))
			compile(strings.TrimPrefix(k.text("group")+"/"+k.text("version"), "/")+" "+k.text("kind"), "k8s.json#/definitions/"+name)
		}
	}
	for _, file := range filepath.SplitList(crds) {
		for _, crd := range parse(t, []string{read(t, file)}) {
			versions, _ := crd.at("spec", "versions").([]any)
			for i := range versions {
				key := crd.text("spec", "group") + "/" + crd.text("spec", "versions", i, "name") + " " + crd.text("spec", "names", "kind")
				add(key+".json", strict("", crd.at("spec", "versions", i, "schema", "openAPIV3Schema")))
				compile(key, key+".json")
			}
		}
	}
	return s
}

// strict refuses unknown fields, and has the types that Swagger cannot express.
func strict(name string, v any) any {
	switch {
	case strings.HasSuffix(name, "util.intstr.IntOrString"):
		return map[string]any{"type": []any{"string", "integer"}}
	case strings.HasSuffix(name, "api.resource.Quantity"):
		return map[string]any{"type": []any{"string", "number"}}
	case strings.HasSuffix(name, "JSONSchemaProps"), strings.HasSuffix(name, "FieldsV1"):
		return map[string]any{"type": "object"}
	}
	switch v := v.(type) {
	case map[string]any:
		if v["x-kubernetes-int-or-string"] == true {
			delete(v, "type")
			delete(v, "anyOf")
		}
		delete(v, "format") // int32 and the like are no formats of JSON schema
		for k, inner := range v {
			v[k] = strict("", inner)
		}
		_, fields := v["properties"].(map[string]any)
		_, said := v["additionalProperties"]
		if fields && !said && v["x-kubernetes-preserve-unknown-fields"] != true && v["type"] == "object" {
			v["additionalProperties"] = false
		}
	case []any:
		for i := range v {
			v[i] = strict("", v[i])
		}
	}
	return v
}

func (s schemas) problem(o object) error {
	schema := s[o.text("apiVersion")+" "+o.text("kind")]
	if schema == nil {
		return errors.New("no such kind")
	}
	if err := schema.Validate(map[string]any(o)); err != nil {
		return fmt.Errorf("refused: %w", err)
	}
	return nil
}

func (s schemas) validate(t *testing.T, where string, o object) {
	t.Helper()
	if err := s.problem(o); err != nil {
		t.Errorf("%s: %s %s: %v", where, o.text("kind"), o.text("metadata", "name"), err)
	}
}
