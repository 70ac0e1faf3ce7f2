package test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// TestRowsNameRealTests keeps docs/reliability.md, docs/security.md and docs/outbox.md honest: every row of their tables of
// faults and goals names a test, or the target that tests what no Go test can, and each test that is named exists.
func TestRowsNameRealTests(t *testing.T) {
	t.Parallel()
	shown := regexp.MustCompile(namedTest.String() + "|`make (test-[a-z]+|lint)`")
	for page, c := range map[string]struct {
		row         string // how a row begins
		rows, named int    // at least
		dir         func(pkg string) string
	}{
		"reliability": {`^\| ([ABCD]\d+|\d+(–\d+)?) \|`, 120, 100, packageDir},
		"security":    {`^\| G\d+ `, 12, 30, func(pkg string) string { return filepath.Join("..", pkg) }},
		"outbox":      {`^\| never \|`, 0, 10, packageDir},
	} {
		text, rows := string(must.Get(os.ReadFile("../docs/"+page+".md"))(t)), 0
		for line := range strings.Lines(text) {
			if !regexp.MustCompile(c.row).MatchString(line) {
				continue
			}
			if rows++; !shown.MatchString(line) {
				t.Errorf("docs/%s.md has a row that names no test: %s", page, line)
			}
		}
		if named := checkNamedTests(t, text, c.dir); rows < c.rows || named < c.named {
			t.Errorf("docs/%s.md: %d rows, %d tests are named: has the form of the tables changed?", page, rows, named)
		}
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
		if moved == "" && !strings.Contains(now, "\nStatus: replaced") { // docs/testing.md has names that only stand for one
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
