package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

const chart = "../../deploy/helm/amqp-sidecar"

func TestReadmeIsUpToDate(t *testing.T) {
	t.Parallel()
	want := must.Get(render(chart))(t)
	got := must.Get(os.ReadFile(filepath.Join(chart, "README.md")))(t)
	if string(got) != want {
		t.Error("README.md of the chart is not what values.yaml says: run go generate ./scripts/chartdoc")
	}
}

func TestTables(t *testing.T) {
	t.Parallel()
	sections := must.Get(parse(`# A file.

# The broker.
# It is far away.
broker:
  # -- Where it is
  url: ""
  # certificates
  tls:
    # -- Key [the | system's *]
    key: ""
# -- Alone
replicas: 1
# -- Much
resources:
  requests: {cpu: 1}
  limits: {cpu: 2}
`))(t)
	want := "\n### broker\n\nThe broker. It is far away.\n\n| value | default | |\n|---|---|---|\n" +
		"| `broker.url` |  | Where it is |\n| `broker.tls.key` | the \\| system's \\* | Key |\n" +
		"\n### The pod and its objects\n\n| value | default | |\n|---|---|---|\n" +
		"| `replicas` | `1` | Alone |\n| `resources` | `requests: {cpu: 1}, limits: {cpu: 2}` | Much |\n\n"
	if got := tables(sections); got != want {
		t.Errorf("%s", got)
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"a: 1\n":              "a has no explanation",
		"a:\n      b: 1\n":    "indented too far",
		"# -- x\n- a\n":       "neither a key nor a comment",
		"b:\n  # x\n  c: 1\n": "b.c has no explanation",
	} {
		if _, err := parse(values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", values, err)
		}
	}
	dir := t.TempDir()
	if _, err := render(dir); err == nil {
		t.Error("a chart without values is not an error")
	}
	for name, text := range map[string]string{"values.yaml": "a: 1\n", "README.md": "no markers"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		if _, err := render(dir); err == nil {
			t.Errorf("after %s: no error", name)
		}
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "README.md"), []byte(begin+end), 0o600))
	if _, err := render(dir); err == nil || !strings.Contains(err.Error(), "values.yaml:1") {
		t.Errorf("an error does not name its line: %v", err)
	}
}
