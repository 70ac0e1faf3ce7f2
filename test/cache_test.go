package test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestResultsDependOnTheProduct lets `go test` see what the results depend on: it caches a package's results by the
// files and variables the tests read, and the sidecar is built behind its back.
func TestResultsDependOnTheProduct(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"AMQP_URL", "BROKER_CTL", "BROKER_DIR", "SIDECAR_BIN", "SIDECAR_TEST_RACE"} {
		_ = os.Getenv(name)
	}
	sources := 0
	for _, dir := range []string{"../cmd", "../internal"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if strings.HasSuffix(path, ".go") {
				sources++
				_, err = os.Stat(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if sources == 0 {
		t.Error("no sources found: the results would be cached for ever")
	}
}
