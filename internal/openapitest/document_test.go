package openapitest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

const small = `{
  "openapi": "3.1.0",
  "paths": {
    "/a": {"get": {"operationId": "a", "parameters": [{"$ref": "#/components/parameters/n"}], "responses": {
      "200": {"description": "x", "content": {"application/json": {"schema": {"type": "object", "required": ["b"]}}}},
      "default": {"$ref": "#/components/responses/Problem"}}}},
    "/a/{id}": {"post": {"operationId": "b", "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "string", "pattern": "^x+$"}}],
      "requestBody": {"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Body"}}}}, "responses": {
      "202": {"description": "x", "headers": {"Location": {"schema": {"type": "string", "minLength": 1}}}, "content": {"text/event-stream": {"schema": {"type": "string"}}}},
      "default": {"$ref": "#/components/responses/Problem"}}}}
  },
  "components": {
    "parameters": {"n": {"name": "n", "in": "query", "schema": {"type": "integer"}}},
    "responses": {"Problem": {"description": "x", "content": {"application/problem+json": {"schema": {"type": "object", "required": ["status"]}}}}},
    "schemas": {"Body": {"type": "object", "additionalProperties": false}}
  }
}`

// judge is a test that may fail without failing ours.
type judge struct {
	testing.TB
	said []string
}

func (j *judge) Helper()                        {}
func (j *judge) Errorf(format string, v ...any) { j.said = append(j.said, fmt.Sprintf(format, v...)) }
func (j *judge) Fatal(v ...any)                 { panic(fmt.Sprint(v...)) }
func (j *judge) Fatalf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }

func TestCheckFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	d := Load(t, []byte(small))
	ask := func(method, target, body string, status int, media, answer string) *Exchange {
		u := must.Get(url.Parse(target))(t)
		h := http.Header{"Content-Type": {media}}
		if status == http.StatusAccepted {
			h.Set("Location", "/here")
		}
		return &Exchange{Method: method, URL: u, Type: "application/json; charset=utf-8", Body: []byte(body), Status: status, Header: h, Answer: []byte(answer)}
	}
	const ok, problem, stream = "application/json", "application/problem+json", "text/event-stream"
	lost := ask("POST", "/a/x", "{}", 202, stream, "")
	lost.Header.Del("Location")
	form := ask("POST", "/a/x", "{}", 202, stream, "")
	form.Type = "text/plain"
	for _, c := range []struct {
		x    *Exchange
		says string // "": nothing is wrong
	}{
		{ask("GET", "/a", "", 200, ok, `{"b":1}`), ""},
		{ask("GET", "/a?n=1", "", 200, ok, `{"b":1}`), ""},
		{ask("HEAD", "/a", "", 200, ok, ""), ""},
		{ask("GET", "/a?n=x", "", 400, problem, `{"status":400}`), ""},
		{ask("POST", "/a/xx", "{}", 202, stream, "event: x"), ""},
		{ask("POST", "/nowhere", "", 404, problem, `{"status":404}`), ""},
		{ask("DELETE", "/a", "", 405, problem, `{"status":405}`), ""},
		{ask("GET", "/a", "", 431, "text/plain", ""), ""},
		{ask("GET", "/a", "", 200, ok, `{}`), "is not what the document says"},
		{ask("GET", "/a", "", 200, ok, `{"b":1}{}`), "is not what the document says"},
		{ask("GET", "/a", "", 200, "text/html", `{"b":1}`), "is not in the document"},
		{ask("GET", "/a", "", 201, ok, `{"b":1}`), "is not in the document"},
		{ask("GET", "/a", "", 400, problem, `{}`), "is not what the document says"},
		{ask("GET", "/a?n=x", "", 200, ok, `{"b":1}`), "parameter n"},
		{ask("GET", "/a?m=1", "", 200, ok, `{"b":1}`), "unknown parameter m"},
		{ask("GET", "/a?%zz", "", 200, ok, `{"b":1}`), "was taken"},
		{ask("POST", "/a/y", "{}", 202, stream, ""), "parameter id"},
		{ask("POST", "/a/x", "", 202, stream, ""), "without a body"},
		{ask("POST", "/a/x", `{"c":1}`, 202, stream, ""), "with the body"},
		{form, `with a body that is "text/plain"`},
		{lost, "header Location"},
		{ask("GET", "/nowhere", "", 200, ok, "{}"), "is not in the document"},
		{ask("GET", "/a/", "", 200, ok, `{"b":1}`), "is not in the document"},
		{ask("GET", "/nowhere", "", 404, "text/plain", "404"), "is not in the document"},
	} {
		j := &judge{TB: t}
		d.Check(j, c.x)
		said := strings.Join(j.said, "\n")
		if (c.says == "") != (said == "") || !strings.Contains(said, c.says) {
			t.Errorf("%s %s %d: said %q, want %q", c.x.Method, c.x.URL, c.x.Status, said, c.says)
		}
	}
	for text, wrong := range map[string]bool{"{}": false, `{"c":1}`: true, "{": true} {
		j := &judge{TB: t}
		d.Schema(j, "Body", []byte(text))
		d.Body(j, "/a/{id}", []byte(text))
		if len(j.said) != map[bool]int{true: 2}[wrong] {
			t.Errorf("%s: %v", text, j.said)
		}
	}
	if got := strings.Join(d.Operations(), ", "); got != "GET /a, POST /a/{id}" {
		t.Errorf("%s", got)
	}
}
