package test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
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

// TestDocsNameRealTests: a test that a page names exists. The tables of docs/testing.md name removed ones as well, except in
// their last column, which names a test or a command in each row.
func TestDocsNameRealTests(t *testing.T) {
	t.Parallel()
	list := must.Get(exec.Command("grep", "-rhoE", "--include=*_test.go", `^func (Test|Fuzz|Benchmark)\w+`, "..").Output())(t)
	named := regexp.MustCompile(`\b(Test|Fuzz|Benchmark)[A-Z]\w*`)
	exist := func(where, text string) (n int) {
		for _, name := range named.FindAllString(text, -1) {
			if n++; !bytes.Contains(list, []byte("func "+name+"\n")) {
				t.Errorf("%s names %s, which does not exist", where, name)
			}
		}
		return n
	}
	pages := must.Get(filepath.Glob("../docs/*.md"))(t)
	for _, page := range append(append(pages, must.Get(filepath.Glob("../docs/decisions/*.md"))(t)...), "../README.md") {
		now, moved, _ := strings.Cut(string(must.Get(os.ReadFile(page))(t)), "\n## Where proofs moved\n")
		if moved == "" { // docs/testing.md has names that only stand for one
			exist(page, now)
		}
		for line := range strings.Lines(moved) {
			if cells := strings.Split(line, "|"); len(cells) == 5 && !strings.Contains(line, "was proven by") && !strings.HasPrefix(line, "|--") &&
				exist(page, cells[3]) == 0 && !strings.Contains(cells[3], "make ") {
				t.Errorf("%s names no test: %s", page, line)
			}
		}
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
	sources := map[string][]byte{} // of the tests, by package
	for _, m := range namedTest.FindAllStringSubmatch(text, -1) {
		pkg, name := m[1], m[2]
		if sources[pkg] == nil {
			for _, file := range must.Get(filepath.Glob(filepath.Join(dir(pkg), "*_test.go")))(t) {
				sources[pkg] = append(sources[pkg], must.Get(os.ReadFile(file))(t)...)
			}
		}
		if named++; !bytes.Contains(sources[pkg], []byte("\nfunc "+name+"(")) {
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

// dlqLine finds a command as it is to be typed.
var dlqLine = regexp.MustCompile(`(?m)^(?:\$ )?(sidecar dlq .*)$`)

// TestDLQDocsAreTypedRight: every `sidecar dlq …` that README.md and docs/dead-letters.md give to be typed is
// understood. There is no broker, so each gets as far as that; what deletes asks first, and there is no terminal to ask.
func TestDLQDocsAreTypedRight(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	must.Do(t, os.Symlink(program, filepath.Join(path, "sidecar")))
	env := append(environ(map[string]string{
		"SIDECAR_SERVICE": "wms-cincout", "SIDECAR_AMQP_URL": "amqp://" + freeAddr(t) + "/",
	}), "PATH="+path+":"+os.Getenv("PATH"))
	for file, least := range map[string]int{"../README.md": 3, "../docs/dead-letters.md": 20} {
		lines := dlqLine.FindAllSubmatch(must.Get(os.ReadFile(file))(t), -1)
		if len(lines) < least {
			t.Errorf("%s: %d commands, there were %d", file, len(lines), least)
		}
		for _, line := range lines {
			typeIn(t, env, string(line[1]))
		}
	}
}

// typeIn runs one line in a directory that holds what an import would read.
func typeIn(t *testing.T, env []string, line string) {
	t.Helper()
	dir := t.TempDir()
	for word := range strings.FieldsSeq(line) {
		if strings.HasPrefix(line, "sidecar dlq import") && strings.HasSuffix(word, ".jsonl") {
			must.Do(t, os.WriteFile(filepath.Join(dir, word), nil, 0o600))
		}
	}
	var stderr bytes.Buffer
	shell := exec.CommandContext(t.Context(), "sh", "-c", line)
	shell.Dir, shell.Env, shell.Stderr = dir, env, &stderr
	err := shell.Run()
	asks := strings.HasPrefix(line, "sidecar dlq discard") && !strings.Contains(line, "--yes") && !strings.Contains(line, "--dry-run")
	code, says := 1, "the broker cannot be reached"
	if asks {
		code, says = 64, "say so with --yes"
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != code || !strings.Contains(stderr.String(), says) {
		t.Errorf("%s: %v, want %d and %q:\n%s", line, err, code, says, stderr.String())
	}
}
