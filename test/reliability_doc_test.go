package test

import (
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

const reliabilityDoc = "../docs/reliability.md"

// TestReliabilityDocNamesRealTests keeps docs/reliability.md honest: a test that it names exists, and every row has one
// or says why not.
func TestReliabilityDocNamesRealTests(t *testing.T) {
	t.Parallel()
	raw := must.Get(os.ReadFile(reliabilityDoc))(t)
	if n := checkNamedTests(t, string(raw), packageDir); n < 100 {
		t.Errorf("only %d tests are named: has the form of the tables changed?", n)
	}
	for i, line := range strings.Split(string(raw), "\n") {
		if cells := strings.Split(line, " | "); row.MatchString(line) && !namedTest.MatchString(line) &&
			(len(cells) != 4 || !strings.Contains(cells[2], "come") || !strings.HasSuffix(line, "| – |")) {
			t.Errorf("line %d names no test and does not say what it comes with: %s", i+1, line)
		}
	}
	for _, missing := range missingRows(string(raw)) {
		t.Errorf("there is no row %s", missing)
	}
}

var row = regexp.MustCompile(`^\| ([ABCD]\d+|\d+(?:–\d+)?) \|`)

// missingRows compares with the rows that the page promises by their numbers.
func missingRows(text string) (missing []string) {
	have := map[string]bool{}
	for line := range strings.Lines(text) {
		m := row.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		first, last, span := strings.Cut(m[1], "–")
		if !span {
			have[first] = true
			continue
		}
		from, _ := strconv.Atoi(first)
		to, _ := strconv.Atoi(last)
		for n := from; n <= to; n++ {
			have[strconv.Itoa(n)] = true
		}
	}
	for prefix, n := range map[string]int{"A": 31, "B": 17, "C": 11, "D": 6, "": 135} {
		for i := range n {
			if id := fmt.Sprint(prefix, i+1); !have[id] {
				missing = append(missing, id)
			}
		}
	}
	return missing
}

// namedTest finds a test that a page names, with its package before it.
var namedTest = regexp.MustCompile("`([a-z][a-z0-9_/]*) ((?:Test|Fuzz)[A-Za-z0-9_]+)`")

// checkNamedTests wants every test that a text names to exist in the directory that dir has for its package, and returns
// how many are named.
func checkNamedTests(t *testing.T, text string, dir func(pkg string) string) (named int) {
	t.Helper()
	known := map[string]map[string]bool{}
	for _, m := range namedTest.FindAllStringSubmatch(text, -1) {
		pkg, name := m[1], m[2]
		if known[pkg] == nil {
			known[pkg] = testsOf(t, dir(pkg))
		}
		if named++; !known[pkg][name] {
			t.Errorf("package %s has no %s", pkg, name)
		}
	}
	return named
}

// packageDir is where a package is that a page names without internal before it.
func packageDir(pkg string) string {
	switch pkg {
	case "test":
		return "."
	case "charts", "kubernetes":
		return pkg
	}
	return filepath.Join("..", "internal", pkg)
}

// testsOf lists the tests in a directory.
func testsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, file := range must.Get(filepath.Glob(filepath.Join(dir, "*_test.go")))(t) {
		f := must.Get(parser.ParseFile(gotoken.NewFileSet(), file, nil, parser.SkipObjectResolution))(t)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}
