package telemetry

import (
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestRegistry(t *testing.T) {
	t.Parallel()
	r := NewRegistry("1.2.3", "abc")
	want := `
# HELP sidecar_build_info Always 1; the labels say which build this is.
# TYPE sidecar_build_info gauge
sidecar_build_info{commit="abc",goversion="` + runtime.Version() + `",version="1.2.3"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "sidecar_build_info"); err != nil {
		t.Error(err)
	}
	process := []string{"go_goroutines", "process_cpu_seconds_total", "process_resident_memory_bytes"}
	if n, err := testutil.GatherAndCount(r, process...); err != nil || n != len(process) {
		t.Errorf("%d of %v: %v", n, process, err)
	}
	if problems, err := testutil.GatherAndLint(r, "sidecar_build_info"); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
