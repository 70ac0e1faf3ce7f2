package test

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mayStrip lists the files that turn a time into text or a number for another process to read.
var mayStrip = []string{
	"internal/dispatch/cloudevents.go", // the message's timestamp, into a digest
	"internal/crash/journal.go",        // outlives the process, as no monotonic reading does
	"internal/amqpvalue/typed.go",      // a header's value, into an export
	"internal/amqpvalue/properties.go", // the message's timestamp, into an export
	"internal/amqpvalue/text.go",       // a header's value
	"internal/telemetry/carrier.go",    // the message's timestamp, into a trace id
}

// TestTimeIsMeasuredMonotonically: a machine's clock is set while sidecars run. Go's times carry a monotonic reading
// that survives it, unless it is stripped, and these calls strip it: a difference, deadline or order computed after
// them would jump with the clock. No clock can be set in a test without setting it for all processes, so the source is
// read.
func TestTimeIsMeasuredMonotonically(t *testing.T) {
	t.Parallel()
	strips := []string{"Unix", "UnixMilli", "UnixMicro", "UnixNano", "AppendFormat", "MarshalText", "MarshalBinary"}
	files := 0
	for _, root := range []string{"../internal", "../cmd"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			name := strings.TrimPrefix(filepath.ToSlash(path), "../")
			if strings.Contains(name, "test/") || strings.HasPrefix(name, "internal/sim/") ||
				strings.HasPrefix(name, "internal/testkit/") || slices.Contains(mayStrip, name) {
				return nil
			}
			files++
			set := gotoken.NewFileSet()
			f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				pkg, _ := sel.X.(*ast.Ident)
				if made := pkg != nil && pkg.Name == "time"; made { // time.Unix makes one
					return true
				}
				zero := len(call.Args) == 1 && isZero(call.Args[0])
				if slices.Contains(strips, sel.Sel.Name) && len(call.Args) == 0 || sel.Sel.Name == "Round" && zero {
					t.Errorf("%s: %s strips the monotonic reading; if the result is only shown, add the file to the list", set.Position(call.Pos()), sel.Sel.Name)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 100 {
		t.Errorf("only %d files were checked", files)
	}
}

func isZero(e ast.Expr) bool {
	lit, ok := e.(*ast.BasicLit)
	return ok && lit.Value == "0"
}
