//go:build charts

package charts

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestBadValues renders every document of every file of bad, which says above its values how it is refused:
//
//	# refused: a part of one line of the message; as many of them as there are lines
//	# schema: a part of what Helm says when the schema refuses the values
//	# with: flags of helm template
//	# sidecar: a part of what the init container sidecar-config prints, where Helm lets the values pass
func TestBadValues(t *testing.T) {
	t.Parallel()
	for _, file := range files(t, "bad/*.yaml") {
		for i, document := range strings.Split(read(t, file), "\n---\n") {
			t.Run(fmt.Sprintf("%s/%d", filepath.Base(file), i), func(t *testing.T) {
				t.Parallel()
				testRefused(t, document)
			})
		}
	}
}

func testRefused(t *testing.T, document string) {
	t.Helper()
	args, lines, schema, said := []string{"-f", valuesFile(t, document)}, []string(nil), []string(nil), []string(nil)
	for line := range strings.Lines(document) {
		key, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "# refused":
			lines = append(lines, text)
		case "# schema":
			schema = append(schema, text)
		case "# sidecar":
			said = append(said, text)
		case "# with":
			args = append(args, strings.Fields(text)...)
		}
	}
	if len(said) > 0 {
		refusedByTheSidecar(t, args, said)
		return
	}
	if len(lines)+len(schema) == 0 {
		t.Fatal("it does not say how it is refused")
	}
	for _, helm := range []string{helm3, helm4} {
		message := refuses(t, helm, args...)
		for _, text := range append(lines, schema...) {
			if !strings.Contains(message, text) {
				t.Errorf("not said: %s\n%s", text, message)
			}
		}
		if said := strings.Count(message, "\n- "); len(lines) > 0 && said != len(lines) {
			t.Errorf("%d lines, not %d:\n%s", said, len(lines), message)
		}
	}
}

// refusedByTheSidecar renders the values and runs what the init container runs, in its environment.
func refusedByTheSidecar(t *testing.T, args, said []string) {
	t.Helper()
	objects := template(t, helm3, chart, args...)
	for _, o := range objects {
		if o.text("kind") == "Pod" || pod(o) == nil {
			continue
		}
		environ := environment(t, sidecar(t, pod(o)))
		for _, secret := range objects { // broker.url
			if url := secret.text("stringData", "url"); url != "" {
				environ = append(environ, "SIDECAR_AMQP_URL_FILE="+valuesFile(t, url))
			}
		}
		_, err := ask(environ, "config")
		for _, text := range said {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("not said: %s\n%v", text, err)
			}
		}
	}
}

// TestEveryWrongKindIsNamed: a single value where a map or a list belongs is refused with what belongs there, and not by
// the schema, which names only types. One map hides those below it: they are replaced one depth at a time.
func TestEveryWrongKindIsNamed(t *testing.T) {
	t.Parallel()
	values := parse(t, []string{read(t, filepath.Join(chart, "values.yaml"))})[0]
	texts := slices.Collect(maps.Values(typedValues(t))) // those may be written as text, or the sidecar reads them
	replaced := 0
	for depth := range 3 {
		wrong, want := map[string]any{}, []string(nil)
		for path, v := range nodes(values, "") {
			kind := map[reflect.Kind]string{reflect.Map: "is a map, {", reflect.Slice: "is a list, ["}[reflect.ValueOf(v).Kind()]
			if kind != "" && strings.Count(path, ".") == depth && !foreign.MatchString(path) && !slices.Contains(texts, any(path)) {
				set(wrong, path, "x")
				want = append(want, "- "+path+": "+kind)
			}
		}
		replaced += len(want)
		file := valuesFile(t, wrong)
		for _, helm := range []string{helm3, helm4} {
			message := refuses(t, helm, "-f", file)
			for _, line := range want {
				if !strings.Contains(message, line) {
					t.Errorf("not said: %s\n%s", line, message)
				}
			}
		}
	}
	if replaced < 70 {
		t.Errorf("only %d maps and lists", replaced)
	}
}

// TestTheLibraryRefuses what it does not know below the key of a chart that uses it.
func TestTheLibraryRefuses(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"topolgy.queueType=quorum":          "topolgy: unknown key. Did you mean topology?",
		"topology.queuType=quorum":          "topology.queuType: unknown key. Did you mean topology.queueType?",
		"service=x":                         "service: unknown key. Did you mean sidecar.service (the service's name) or app.port (the app's port)?",
		"app.port=99999":                    "app.port: 99999 is not a port",
		"replicaCount=2":                    "replicaCount: unknown key. Known are app, broker,",
		"extraEnv=x":                        "extraEnv: is a list, [{name: …, value: …}], and not a single value",
		"sidecar.resources=1Gi":             "sidecar.resources: is a map, {limits: …, requests: …}, and not a single value",
		"extraVolumes[0]=x":                 `extraVolumes: "x" is not an item of this list`,
		"terminationGracePeriodSeconds=abc": `terminationGracePeriodSeconds: "abc" is not a whole number of seconds`,
	} {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			for _, helm := range []string{helm3, helm4} {
				_, err := run(helm, "template", release, example, "--kube-version", kubernetes, "--set", "messages."+set)
				if err == nil || !strings.Contains(err.Error(), "\n- ") || !strings.Contains(err.Error(), want) {
					t.Errorf("not said: %s\n%v", want, err)
				}
			}
		})
	}
}
