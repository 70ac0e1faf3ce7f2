package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMutantsAreUpToDate: the self-test takes long and runs seldom; that a deliberate bug has lost its place is known
// at once.
func TestMutantsAreUpToDate(t *testing.T) {
	t.Parallel()
	for _, m := range slices.Concat(mutants, outward, further, native, neighbours, gatherers) {
		for _, e := range m.edits {
			text, err := os.ReadFile(filepath.Join("..", "..", e.file))
			if err != nil {
				t.Error(err)
				continue
			}
			if n := strings.Count(string(text), e.old); n != 1 {
				t.Errorf("a sidecar that %s: %s holds %q %d times", m.name, e.file, e.old, n)
			}
		}
	}
}
