package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const securityDoc = "../docs/security.md"

// securityDocTests finds the tests that a document names, the path of the package before each.
var securityDocTests = regexp.MustCompile("`([a-z][a-z0-9_/]*) ((?:Test|Fuzz)[A-Za-z0-9_]+)`")

// securityDocShown finds a test, a target that tests what no Go test can, or the part that is yet to come.
var securityDocShown = regexp.MustCompile(securityDocTests.String() + "|`make test-[a-z]+`|comes with the (publish endpoint) ")

// TestSecurityDocNamesItsTests: every goal of docs/security.md has a row, every row names a test that shows it or says
// that the part it is about is yet to come, and every test that is named exists.
func TestSecurityDocNamesItsTests(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(securityDoc)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(b)) {
		if m := regexp.MustCompile(`^\| (G\d+) `).FindStringSubmatch(line); m != nil {
			rows[m[1]] = append(rows[m[1]], line)
		}
	}
	for _, goal := range []string{"G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9", "G10", "G11", "G12"} {
		if len(rows[goal]) == 0 {
			t.Errorf("no row is about %s", goal)
		}
		for _, row := range rows[goal] {
			if !securityDocShown.MatchString(row) {
				t.Errorf("%s names no test, and is not about what is yet to come: %q", goal, row)
			}
		}
	}
	named := securityDocTests.FindAllStringSubmatch(string(b), -1)
	functions := map[string]map[string]bool{}
	for _, m := range named {
		dir, name := m[1], m[2]
		if functions[dir] == nil {
			functions[dir] = testsOf(t, filepath.Join("..", dir)) // below internal
		}
		if !functions[dir][name] {
			t.Errorf("there is no %s in %s", name, dir)
		}
	}
	// Whatever looks like a test must have been found above.
	if words := regexp.MustCompile(`\b(Test|Fuzz)[A-Z]\w*`).FindAllString(string(b), -1); len(words) != len(named) {
		t.Errorf("%d names of tests, and %d with their package", len(words), len(named))
	}
}
