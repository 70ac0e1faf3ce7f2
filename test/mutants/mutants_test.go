//go:build nightly

// Package mutants shows that the tests find one-line bugs. mutants.json holds them: each replaces one text of the product's source by an
// overlay of the build, and the test that it names has to fail.
package mutants

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mutant is a row of mutants.json. Old is in File exactly once.
type mutant struct {
	What string // what is wrong with the product, as a sentence
	File string // from the root of the repository
	Old  string
	New  string
	Pkg  string // package whose tests find it, from the root
	Run  string // and which, for go test -run
}

// TestMutants runs all rows, or with MUTANTS, a regular expression over "File: What", some.
func TestMutants(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("mutants.json")
	if err != nil {
		t.Fatal(err)
	}
	var mutants []mutant
	if err := json.Unmarshal(raw, &mutants); err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	wanted, err := regexp.Compile(os.Getenv("MUTANTS"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range mutants {
		m := &mutants[i]
		if name := m.File + ": " + m.What; wanted.MatchString(name) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				m.find(t, root)
			})
		}
	}
}

// find fails when the test passes with the bug. A mutant that is not in the source any more, or does not compile, is out of date.
func (m *mutant) find(t *testing.T, root string) {
	path := filepath.Join(root, m.File)
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.Old); n != 1 {
		t.Fatalf("out of date: %s holds this text %d times:\n%s", m.File, n, m.Old)
	}
	edited, overlay := filepath.Join(t.TempDir(), "edited.go"), filepath.Join(t.TempDir(), "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{path: edited}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(edited, []byte(strings.Replace(string(source), m.Old, m.New, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	// The flag is in the environment because the black-box tests build the sidecar themselves.
	command := func(args ...string) (string, error) {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "GOFLAGS=-overlay="+overlay)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := command("build", "-o", os.DevNull, "./cmd/sidecar"); err != nil {
		t.Fatalf("does not compile: %s", out)
	}
	out, err := command("test", "-count=1", "-vet=off", "-timeout=5m", "-run", m.Run, "./"+m.Pkg)
	failure := regexp.MustCompile(`(?m)^\s*--- FAIL.*|^panic: .*`).FindString(out)
	switch {
	case err == nil:
		t.Errorf("no test of %s -run '%s' finds it", m.Pkg, m.Run)
	case failure == "":
		t.Errorf("the tests did not run: %s", out)
	}
	fmt.Fprintln(t.Output(), failure)
}
