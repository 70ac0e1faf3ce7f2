//go:build kubernetes

package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// The values that the documentation shows, and those of its first installation, render, and the API server takes the
// result.
func TestDocumentedValuesAreTaken(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	files := []string{filepath.Join(env.repo, "examples/kubernetes/values.yaml")}
	for page, least := range map[string]int{"kubernetes.md": 14, "migration.md": 1} {
		doc := must.Get(os.ReadFile(filepath.Join(env.repo, "docs", page)))(t)
		blocks := strings.Split(string(doc), "<!-- values -->\n```yaml\n")[1:]
		if len(blocks) < least {
			t.Errorf("%s has %d blocks of values: has their form changed?", page, len(blocks))
		}
		for _, block := range blocks {
			values, _, _ := strings.Cut(block, "```")
			file := filepath.Join(t.TempDir(), fmt.Sprintf("%d.yaml", len(files)))
			must.Do(t, os.WriteFile(file, []byte(values), 0o600))
			files = append(files, file)
		}
	}
	for _, file := range files {
		base := filepath.Join(t.TempDir(), "base.yaml")
		must.Do(t, os.WriteFile(base, []byte("app: {image: {repository: app}}\nbroker: {existingSecret: orders-broker}\n"), 0o600))
		manifest := s.helm("template", s.service, chart(), "-f", base, "-f", file)
		if _, err := s.tryKubectl(manifest, "apply", "--dry-run=server", "--validate=strict", "-f", "-"); err != nil {
			text, _ := os.ReadFile(file)
			t.Errorf("%v\n%s", err, text)
		}
	}
}
