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

// TestLogEventsAreDocumented: docs/logs.md has every event that the code logs, and no other.
func TestLogEventsAreDocumented(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(read(t, logs), "\nThe other events:\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(section, -1) {
		for event := range strings.SplitSeq(m[1], ", `") {
			documented = append(documented, strings.Trim(event, "`"))
		}
	}
	logged := map[string]string{}
	for _, dir := range []string{"../../internal", "../../cmd"} {
		must.Do(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && strings.HasSuffix(d.Name(), "test") {
				return fs.SkipDir
			}
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				eventsOf(t, path, logged)
			}
			return err
		}))
	}
	if len(documented) < 40 || len(logged) < 40 {
		t.Fatalf("only %q are documented, %v are logged: has the form of either changed?", documented, logged)
	}
	for event, where := range logged {
		if !slices.Contains(documented, event) {
			t.Errorf("%s logs %q, which is not documented", where, event)
		}
	}
	for _, event := range documented {
		if logged[event] == "" {
			t.Errorf("%q is documented, and no one logs it", event)
		}
	}
}

// eventsOf adds the events that a file logs, with where they are: the first argument of a logger's methods, and what
// follows a level. A name that stands for an event is left out: its text is where it was called with a level.
func eventsOf(t *testing.T, path string, logged map[string]string) {
	t.Helper()
	files := token.NewFileSet()
	file := must.Get(parser.ParseFile(files, path, nil, parser.SkipObjectResolution))(t)
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		var event int
		name, receiver := selected(call.Fun)
		switch isLogger := slices.Contains([]string{"log", "logger"}, strings.ToLower(receiver)); {
		case isLogger && slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, name):
			event = 0
		case isLogger && name == "Log":
			event = 2
		default:
			event = 1 + slices.IndexFunc(call.Args, func(e ast.Expr) bool {
				level, from := selected(e)
				return from == "slog" && strings.HasPrefix(level, "Level")
			})
			if event == 0 {
				return true
			}
		}
		if event >= len(call.Args) {
			return true
		}
		arg := call.Args[event]
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
