package test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"sidecar/internal/testkit/must"
)

// shipped is the binary without the race detector, which is what sizes are promised for. It also starts in a fraction
// of the time: for tests that start many.
func shipped(t *testing.T) string {
	t.Helper()
	if !raceBuild {
		return program
	}
	out := must.Get(buildShipped())(t)
	return out
}

var buildShipped = sync.OnceValues(func() (string, error) {
	out := filepath.Join(workDir, "sidecar-shipped")
	return out, build(out, false)
})

// TestBinarySize: 16 MiB, stripped as it is shipped.
func TestBinarySize(t *testing.T) {
	t.Parallel()
	info := must.Get(os.Stat(shipped(t)))(t)
	t.Logf("%.1f MiB", float64(info.Size())/(1<<20))
	if info.Size() > 16<<20 {
		t.Errorf("the binary has %.1f MiB, the limit is 16", float64(info.Size())/(1<<20))
	}
}
