//go:build charts

package charts

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// installation finds a command that installs a chart of this repository, up to the end of its last line.
var installation = regexp.MustCompile(`(?m)^(?:\$ )?helm install ((?:[^\n\\]|\\\n)+)$`)

// TestDocumentedInstallations: what the pages install renders, with the values that the page gives.
func TestDocumentedInstallations(t *testing.T) {
	t.Parallel()
	found := 0
	for _, page := range []string{"README.md", "docs/kubernetes.md", "deploy/helm/amqp-sidecar/README.md"} {
		for _, m := range installation.FindAllStringSubmatch(read(t, filepath.Join(root, page)), -1) {
			args := []string{"template", "--kube-version", kubernetes}
			for word := range strings.FieldsSeq(strings.ReplaceAll(m[1], "\\\n", " ")) {
				if path := filepath.Join(root, word); strings.Contains(word, "/") && !strings.Contains(word, "=") {
					if _, err := os.Stat(path); err != nil {
						t.Errorf("%s: %v", page, err)
					}
					word = path
				}
				if word != "--wait" {
					args = append(args, word)
				}
			}
			for _, helm := range []string{helm3, helm4} {
				if _, err := run(helm, args...); err != nil {
					t.Errorf("%s: %v", page, err)
				}
			}
			found++
		}
	}
	if found < 4 {
		t.Errorf("only %d installations are documented: has their form changed?", found)
	}
}
