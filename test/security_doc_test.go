package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

const securityDoc = "../docs/security.md"

// securityDocShown finds a test, a target that tests what no Go test can, or the part that is yet to come.
var securityDocShown = regexp.MustCompile(namedTest.String() + "|`make test-[a-z]+`|comes with the (publish endpoint) ")

// TestSecurityDocNamesItsTests: every goal of docs/security.md has a row, every row names a test that shows it or says
// that the part it is about is yet to come, and every test that is named exists.
func TestSecurityDocNamesItsTests(t *testing.T) {
	t.Parallel()
	b := must.Get(os.ReadFile(securityDoc))(t)
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
	named := checkNamedTests(t, string(b), func(pkg string) string { return filepath.Join("..", pkg) })
	// Whatever looks like a test must have been found above.
	if words := regexp.MustCompile(`\b(Test|Fuzz)[A-Z]\w*`).FindAllString(string(b), -1); len(words) != named {
		t.Errorf("%d names of tests, and %d with their package", len(words), named)
	}
}
