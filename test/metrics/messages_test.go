package metrics

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// TestLogMessagesAreDocumented: docs/logs.md has every msg that the code logs, and no other.
func TestLogMessagesAreDocumented(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(read(t, logs), "\nThe other messages:\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(section, -1) {
		for msg := range strings.SplitSeq(m[1], ", `") {
			documented = append(documented, strings.Trim(msg, "`"))
		}
	}
	logged := map[string]string{}
	for _, dir := range []string{"../../internal", "../../cmd"} {
		must.Do(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && strings.HasSuffix(d.Name(), "test") {
				return fs.SkipDir
			}
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				messagesOf(t, path, logged)
			}
			return err
		}))
	}
	if len(documented) < 40 || len(logged) < 40 {
		t.Fatalf("only %q are documented, %v are logged: has the form of either changed?", documented, logged)
	}
	for msg, where := range logged {
		if !slices.Contains(documented, msg) {
			t.Errorf("%s logs %q, which is not documented", where, msg)
		}
	}
	for _, msg := range documented {
		if logged[msg] == "" {
			t.Errorf("%q is documented, and not logged", msg)
		}
	}
}

// messagesOf adds the messages that a file logs, with their positions: the first argument of a logger's methods, or the
// argument after a level. A variable is left out: its text is found at the call that has the level.
func messagesOf(t *testing.T, path string, logged map[string]string) {
	t.Helper()
	files := token.NewFileSet()
	file := must.Get(parser.ParseFile(files, path, nil, parser.SkipObjectResolution))(t)
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		var msg int
		name, receiver := selected(call.Fun)
		switch isLogger := slices.Contains([]string{"log", "logger"}, strings.ToLower(receiver)); {
		case isLogger && slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, name):
			msg = 0
		case isLogger && name == "Log":
			msg = 2
		default:
			msg = 1 + slices.IndexFunc(call.Args, func(e ast.Expr) bool {
				level, from := selected(e)
				return from == "slog" && strings.HasPrefix(level, "Level")
			})
			if msg == 0 {
				return true
			}
		}
		if msg >= len(call.Args) {
			return true
		}
		arg := call.Args[msg]
		if inner, ok := arg.(*ast.CallExpr); ok { // fmt.Sprintf
			arg = inner.Args[0]
		}
		if lit, ok := arg.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, _ := strconv.Unquote(lit.Value)
			logged[strings.ReplaceAll(text, "%d", "n")] = files.Position(call.Pos()).String()
		}
		return true
	})
}

// selected is the name at the end of x.name or a.x.name, and the one before.
func selected(e ast.Expr) (name, before string) {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	switch x := s.X.(type) {
	case *ast.Ident:
		before = x.Name
	case *ast.SelectorExpr:
		before = x.Sel.Name
	}
	return s.Sel.Name, before
}
