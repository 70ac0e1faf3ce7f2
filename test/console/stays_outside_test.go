package console

import (
	"os/exec"
	"strings"
	"testing"
)

// TestTheBrowserStaysOutside: what drives the browser is for tests and never in the product.
func TestTheBrowserStaysOutside(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "../../cmd/sidecar").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := string(out)
	if !strings.Contains(deps, "sidecar/internal/admin\n") {
		t.Fatalf("the binary is made of:\n%s", deps)
	}
	for dep := range strings.Lines(deps) {
		if strings.Contains(dep, "chromedp") {
			t.Errorf("the binary holds %s", dep)
		}
	}
}
