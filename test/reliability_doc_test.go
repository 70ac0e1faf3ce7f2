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
)

const reliabilityDoc = "../docs/reliability.md"

// TestReliabilityDocNamesRealTests keeps docs/reliability.md honest: a test that it names exists, and every row has one
// or says why not.
func TestReliabilityDocNamesRealTests(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(reliabilityDoc)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]map[string]bool{}
	named := regexp.MustCompile("`([a-z/]+) ((?:Test|Fuzz)[A-Za-z0-9_]+)`")
	count := 0
	for i, line := range strings.Split(string(raw), "\n") {
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			pkg, name := m[1], m[2]
			if known[pkg] == nil {
				known[pkg] = testsOf(t, pkg)
			}
			if count++; !known[pkg][name] {
				t.Errorf("line %d: package %s has no %s", i+1, pkg, name)
			}
		}
		if cells := strings.Split(line, " | "); row.MatchString(line) && !named.MatchString(line) &&
			(len(cells) != 4 || !strings.Contains(cells[2], "come") || !strings.HasSuffix(line, "| – |")) {
			t.Errorf("line %d names no test and does not say what it comes with: %s", i+1, line)
		}
	}
	if count < 100 {
		t.Errorf("only %d tests are named: has the form of the tables changed?", count)
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

// testsOf lists the tests of a package by its path in internal, or of the black-box tests.
func testsOf(t *testing.T, pkg string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "internal", pkg, "*_test.go"))
	switch pkg {
	case "test":
		files, err = filepath.Glob("*_test.go")
	case "charts", "kubernetes":
		files, err = filepath.Glob(filepath.Join(pkg, "*_test.go"))
	}
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		f, err := parser.ParseFile(gotoken.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}
