//go:build kubernetes

package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The values that docs/kubernetes.md shows, and those of its first installation, render, and the API server takes the result.
func TestDocumentedValuesAreTaken(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(filepath.Join(env.repo, "docs/kubernetes.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(doc), "<!-- values -->\n```yaml\n")
	if len(blocks) < 10 {
		t.Fatalf("only %d blocks of values: has their form changed?", len(blocks)-1)
	}
	s := newScene(t)
	files := []string{filepath.Join(env.repo, "examples/kubernetes/values.yaml")}
	for i, block := range blocks[1:] {
		values, _, _ := strings.Cut(block, "```")
		file := filepath.Join(t.TempDir(), fmt.Sprintf("%d.yaml", i))
		if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	for _, file := range files {
		base := filepath.Join(t.TempDir(), "base.yaml")
		if err := os.WriteFile(base, []byte("app: {image: app}\nbroker: {existingSecret: orders-broker}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		manifest := s.helm("template", s.service, chart(), "-f", base, "-f", file)
		if _, err := s.tryKubectl(manifest, "apply", "--dry-run=server", "--validate=strict", "-f", "-"); err != nil {
			text, _ := os.ReadFile(file)
			t.Errorf("%v\n%s", err, text)
		}
	}
}
