//go:build charts

package charts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBadValues renders every document of every file of bad, which says above its values how it is refused:
//
//	# refused: a part of one line of the message; as many of them as there are lines
//	# schema: a part of what Helm says when the schema refuses the values
//	# with: flags of helm template
func TestBadValues(t *testing.T) {
	for _, file := range files(t, "bad/*.yaml") {
		for i, document := range strings.Split(read(t, file), "\n---\n") {
			t.Run(fmt.Sprintf("%s/%d", filepath.Base(file), i), func(t *testing.T) {
				t.Parallel()
				testRefused(t, document)
			})
		}
	}
}

func testRefused(t *testing.T, document string) {
	t.Helper()
	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	args, lines, schema := []string{"-f", values}, []string(nil), []string(nil)
	for line := range strings.Lines(document) {
		key, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "# refused":
			lines = append(lines, text)
		case "# schema":
			schema = append(schema, text)
		case "# with":
			args = append(args, strings.Fields(text)...)
		}
	}
	if len(lines)+len(schema) == 0 {
		t.Fatal("it does not say how it is refused")
	}
	for _, helm := range []string{helm3, helm4} {
		message := refuses(t, helm, args...)
		for _, text := range append(lines, schema...) {
			if !strings.Contains(message, text) {
				t.Errorf("not said: %s\n%s", text, message)
			}
		}
		if said := strings.Count(message, "\n- "); len(lines) > 0 && said != len(lines) {
			t.Errorf("%d lines, not %d:\n%s", said, len(lines), message)
		}
	}
}
