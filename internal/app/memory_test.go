package app

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	missing := filepath.Join(dir, "missing")
	for name, c := range map[string]struct {
		files []string
		want  int64
	}{
		"no cgroup":          {[]string{missing}, 0},
		"version 2":          {[]string{file("v2", "134217728\n")}, 134217728},
		"version 2 no limit": {[]string{file("max", "max\n"), file("v2b", "1000\n")}, 0},
		"version 1":          {[]string{missing, file("v1", "268435456\n")}, 268435456},
		"version 1 no limit": {[]string{missing, file("v1max", "9223372036854771712\n")}, 0},
		"nonsense":           {[]string{file("x", "lots\n")}, 0},
	} {
		if got := memoryLimit(c.files); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestSmallerLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ container, runtime, want int64 }{
		{0, math.MaxInt64, 0}, {5, math.MaxInt64, 5}, {0, 7, 7}, {5, 7, 5}, {9, 7, 7},
	} {
		if got := smaller(c.container, c.runtime); got != c.want {
			t.Errorf("container %d, GOMEMLIMIT %d: %d, want %d", c.container, c.runtime, got, c.want)
		}
	}
}

func TestLimitMemory(t *testing.T) { //nolint:paralleltest // sets the process's memory limit
	before := debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	limitMemory(0)
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("no limit became %d", got)
	}
	limitMemory(1000)
	if got := debug.SetMemoryLimit(-1); got != 900 {
		t.Errorf("a limit of 1000 became %d, want nine tenths", got)
	}
	limitMemory(2000)
	if got := debug.SetMemoryLimit(-1); got != 900 {
		t.Errorf("a limit that was set before became %d", got)
	}
}
