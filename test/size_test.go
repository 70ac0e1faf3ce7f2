package test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// shipped is the binary without the race detector, which is what sizes are promised for. It also starts in a fraction
// of the time: for tests that start many.
func shipped(t *testing.T) string {
	t.Helper()
	if !raceBuild {
		return program
	}
	out, err := buildShipped()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var buildShipped = sync.OnceValues(func() (string, error) {
	out := filepath.Join(workDir, "sidecar-shipped")
	return out, build(out, false)
})

// TestBinarySize: 16 MiB, stripped as it is shipped.
func TestBinarySize(t *testing.T) {
	t.Parallel()
	info, err := os.Stat(shipped(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f MiB", float64(info.Size())/(1<<20))
	if info.Size() > 16<<20 {
		t.Errorf("the binary has %.1f MiB, the limit is 16", float64(info.Size())/(1<<20))
	}
}

// TestIdleMemory: what the kernel says about a sidecar that waits.
func TestIdleMemory(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Log("no /proc here")
		return
	}
	sc := newScene(t).with("LOG_LEVEL", "info")
	s := launchBinary(t, shipped(t), sc.env).listening().awaitReady()
	time.Sleep(5 * time.Second) // idle is what is measured
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var kib int
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 {
			t.Logf("%.1f MiB", float64(kib)/1024)
			if kib > 14<<10 {
				t.Errorf("idle RSS is %.1f MiB, the limit is 14", float64(kib)/1024)
			}
			return
		}
	}
	t.Error("no VmRSS")
}
