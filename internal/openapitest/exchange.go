package openapitest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// Exchange is a request and its answer.
type Exchange struct {
	Method string
	URL    *url.URL
	Type   string // of the request's body
	Body   []byte

	Status int
	Header http.Header
	Answer []byte
}

// Check fails the test when the document does not allow the answer, or does not allow the request although it was
// taken. An answer to a request for what the document does not have must be a refusal. What net/http refuses before any
// handler (headers that are too large) is not checked.
func (d *Document) Check(t testing.TB, x *Exchange) {
	t.Helper()
	if x.Status == http.StatusRequestHeaderFieldsTooLarge {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	path, at := d.find(x)
	if at == "" {
		if x.Status < 400 {
			t.Errorf("%s %s: %d, and it is not in the document", x.Method, x.URL, x.Status)
		}
		at = "/components/responses/Problem"
	} else {
		if x.Status < 400 {
			d.checkRequest(t, x, path, at)
		}
		at = d.follow(at + pointer("responses", d.statusOf(at, x.Status)))
	}
	d.checkAnswer(t, x, at)
}

// Body fails the test when a JSON text is not a body for a POST to path.
func (d *Document) Body(t testing.TB, path string, text []byte) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.checkBody(t, &Exchange{Method: http.MethodPost, URL: &url.URL{Path: path}, Type: "application/json", Body: text},
		pointer("paths", path, "post"))
}

// find returns the path template that an exchange is about, and a pointer to the operation; "" when there is none.
func (d *Document) find(x *Exchange) (path, at string) {
	method := strings.ToLower(x.Method)
	if method == "head" {
		method = "get"
	}
	asked, best := strings.Split(x.URL.EscapedPath(), "/"), -1
	for template := range d.object("/paths") {
		literal := fits(strings.Split(template, "/"), asked)
		if literal > best && d.at(pointer("paths", template, method)) != nil {
			path, best = template, literal
		}
	}
	if best < 0 {
		return "", ""
	}
	return path, pointer("paths", path, method)
}

// fits counts the literal segments; -1 when the path is another one.
func fits(template, asked []string) (literal int) {
	if len(template) != len(asked) {
		return -1
	}
	for i, s := range template {
		switch {
		case s == asked[i]:
			literal++
		case !isParameter(s) || asked[i] == "":
			return -1
		}
	}
	return literal
}

func (d *Document) statusOf(operation string, status int) string {
	s := strconv.Itoa(status)
	if d.object(operation + "/responses")[s] == nil {
		return "default"
	}
	return s
}

func (d *Document) checkRequest(t testing.TB, x *Exchange, path, at string) {
	t.Helper()
	query, err := url.ParseQuery(x.URL.RawQuery)
	if err != nil {
		t.Errorf("%s %s was taken: %v", x.Method, x.URL, err)
	}
	for _, p := range d.parameters(at) {
		given := query[p.name]
		delete(query, p.name)
		if p.in == "path" {
			given = []string{segment(path, "{"+p.name+"}", x.URL.EscapedPath())}
		}
		if len(given) == 0 && !p.required {
			continue
		}
		if err := d.schema(t, p.schema).Validate(p.value(given)); err != nil {
			t.Errorf("%s %s was taken: parameter %s: %v", x.Method, x.URL, p.name, err)
		}
	}
	for name := range query {
		t.Errorf("%s %s was taken: unknown parameter %s", x.Method, x.URL, name)
	}
	d.checkBody(t, x, at)
}

func (d *Document) checkBody(t testing.TB, x *Exchange, at string) {
	t.Helper()
	body := d.follow(at + "/requestBody")
	if len(strings.TrimSpace(string(x.Body))) == 0 {
		if d.object(body)["required"] == true {
			t.Errorf("%s %s was taken without a body", x.Method, x.URL)
		}
		return
	}
	media, _, _ := strings.Cut(x.Type, ";")
	if schema := body + pointer("content", media, "schema"); d.at(schema) == nil {
		t.Errorf("%s %s was taken with a body that is %q", x.Method, x.URL, x.Type)
	} else if err := d.validate(t, schema, x.Body); err != nil {
		t.Errorf("%s %s was taken with the body %.200s: %v", x.Method, x.URL, x.Body, err)
	}
}

func (d *Document) checkAnswer(t testing.TB, x *Exchange, at string) {
	t.Helper()
	media := x.Header.Get("Content-Type")
	schema := at + pointer("content", media, "schema")
	if d.at(schema) == nil {
		t.Errorf("%s %s: %d %q is not in the document: %.200s", x.Method, x.URL, x.Status, media, x.Answer)
		return
	}
	for name := range d.object(at + "/headers") {
		if err := d.schema(t, at+pointer("headers", name, "schema")).Validate(x.Header.Get(name)); err != nil {
			t.Errorf("%s %s: %d: header %s: %v", x.Method, x.URL, x.Status, name, err)
		}
	}
	if x.Method == http.MethodHead || !strings.HasSuffix(media, "json") {
		return
	}
	if err := d.validate(t, schema, x.Answer); err != nil {
		t.Errorf("%s %s: %d %.1000s\nis not what the document says: %v", x.Method, x.URL, x.Status, x.Answer, err)
	}
}

// segment is the value of a parameter in a path.
func segment(template, parameter, path string) string {
	segments := strings.Split(path, "/")
	for i, s := range strings.Split(template, "/") {
		if s == parameter {
			v, _ := url.PathUnescape(segments[i])
			return v
		}
	}
	return ""
}

// value is a parameter as its schema sees it.
func (p *parameter) value(given []string) any {
	switch p.kind {
	case "array":
		list := make([]any, len(given))
		for i, s := range given {
			list[i] = s
		}
		return list
	case "integer":
		return json.Number(given[0])
	case "boolean":
		if b, err := strconv.ParseBool(given[0]); err == nil {
			return b
		}
	}
	return given[0]
}
