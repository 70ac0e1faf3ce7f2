package test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

const examples = "../examples/topologies"

// TestExamples: every file in examples/topologies comes to exactly the objects of its table, and there is a
// file for every table and a table for every file. A plan file is as `sidecar plan` prints it, and points to its schema; the
// README says `set -a; . FILE` for the others, which must mean what `docker run --env-file FILE` does.
func TestExamples(t *testing.T) {
	t.Parallel()
	if files, tables := exampleFiles(t), slices.Sorted(maps.Keys(exampleTables)); !slices.Equal(files, tables) {
		t.Fatalf("files  %v\ntables %v", files, tables)
	}
	for name, table := range exampleTables {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			environ := exampleEnviron(t, name)
			planned := func(format string) string {
				r := command(t, environ, "plan", "--format", format)
				if r.code != 0 {
					t.Fatalf("exit %d: %s", r.code, r.all())
				}
				return r.stdout
			}
			// Some lines hold for several subscriptions.
			got := slices.Compact(slices.Sorted(slices.Values(objects(t, planned("definitions")))))
			want := slices.Compact(slices.Sorted(slices.Values(strings.Split(strings.TrimSpace(table), "\n"))))
			want = slices.DeleteFunc(want, func(line string) bool { return line == "" })
			if table != "" && !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if isPlan(name) {
				raw := string(must.Get(os.ReadFile(filepath.Join(examples, name)))(t))
				if plan := strings.Replace(raw, "  \"$schema\": \"../../../docs/plan.schema.json\",\n", "", 1); planned("json") != plan || plan == raw {
					t.Errorf("printed\n%s", planned("json"))
				}
				return
			}
			shell := exec.CommandContext(t.Context(), "env", "-i", "sh", "-c", `set -a; . "$1"; set +a; env`, "sh", filepath.Join(examples, name))
			lines := strings.Split(string(must.Get(shell.Output())(t)), "\n")
			for k, v := range environ {
				if !slices.Contains(lines, k+"="+v) {
					t.Errorf("%s=%s is not what a shell reads:\n%s", k, v, lines)
				}
			}
		})
	}
}

func isPlan(name string) bool { return strings.HasSuffix(name, ".json") }

// exampleEnviron is the environment of an example: that of its file, or one that names the plan.
func exampleEnviron(t *testing.T, name string) map[string]string {
	t.Helper()
	if isPlan(name) {
		return map[string]string{"SIDECAR_SERVICE": "example", "SIDECAR_PLAN_FILE": filepath.Join(examples, name)}
	}
	return envFile(t, name)
}

// exampleFiles lists the files, without the text that explains them.
func exampleFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(examples, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path == filepath.Join(examples, "README.md") {
			return err
		}
		name, err := filepath.Rel(examples, path)
		files = append(files, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

// envFile reads a file as docker does: everything behind the first "=" is the value, whatever it holds.
func envFile(t *testing.T, name string) map[string]string {
	t.Helper()
	raw := must.Get(os.ReadFile(filepath.Join(examples, name)))(t)
	env := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		if !ok || !strings.HasPrefix(k, "SIDECAR_") || strings.ContainsAny(v, `"'$ `) || env[k] != "" {
			t.Errorf("%s: %q is not a plain NAME=value", name, line)
		}
		env[k] = v
	}
	return env
}

// visible is a name that may be empty.
func visible(name string) string {
	if name == "" {
		return `""`
	}
	return name
}

// objects writes a definitions file down as lines. All objects are durable and belong to the vhost /.
func objects(t *testing.T, definitions string) []string {
	t.Helper()
	type object struct {
		Name, Vhost, Type   string
		Source, Destination string
		Durable, Internal   bool
		AutoDelete          bool                       `json:"auto_delete"`
		DestinationType     string                     `json:"destination_type"`
		RoutingKey          string                     `json:"routing_key"`
		Arguments           map[string]json.RawMessage `json:"arguments"`
	}
	var doc map[string][]object
	if err := json.Unmarshal([]byte(definitions), &doc); err != nil {
		t.Fatalf("%v in %s", err, definitions)
	}
	if kinds := slices.Sorted(maps.Keys(doc)); !slices.Equal(kinds, []string{"bindings", "exchanges", "queues"}) {
		t.Errorf("the definitions hold %v", kinds)
	}
	var lines []string
	for kind, list := range doc {
		for _, o := range list {
			if o.Vhost != "/" || o.AutoDelete || o.Internal || o.Durable == (kind == "bindings") ||
				kind == "exchanges" && len(o.Arguments) > 0 || kind == "bindings" && o.DestinationType != "queue" {
				t.Errorf("%s: %+v", kind, o)
			}
			switch kind {
			case "exchanges":
				lines = append(lines, fmt.Sprintf("exchange %s %s", o.Name, o.Type))
			case "queues":
				lines = append(lines, "queue "+o.Name+arguments(o.Arguments))
			case "bindings":
				lines = append(lines, fmt.Sprintf("binding %s %s %s%s", o.Source, visible(o.RoutingKey), o.Destination,
					arguments(o.Arguments)))
			}
		}
	}
	return lines
}

// arguments writes arguments down in the order of their names.
func arguments(all map[string]json.RawMessage) string {
	var line strings.Builder
	for _, arg := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&line, " %s=%s", arg, all[arg])
	}
	return line.String()
}
