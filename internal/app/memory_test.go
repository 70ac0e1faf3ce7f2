package app

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

func TestCgroupLimit(t *testing.T) {
	t.Parallel()
	type files map[string]string
	for name, c := range map[string]struct {
		own   string
		files files
		want  int64
	}{
		"no cgroup":                    {"", nil, 0},
		"version 2":                    {"0::/", files{"memory.max": "134217728\n"}, 134217728},
		"version 2 without a limit":    {"0::/", files{"memory.max": "max\n"}, 0},
		"version 2 below the root":     {"0::/a/b", files{"memory.max": "max", "a/memory.max": "2000", "a/b/memory.max": "3000"}, 2000},
		"version 1":                    {"4:memory:/", files{"memory/memory.limit_in_bytes": "268435456\n"}, 268435456},
		"version 1 without a limit":    {"4:memory:/", files{"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
		"version 1 below the root":     {"3:cpu:/x\n4:hugetlb,memory:/a", files{"memory/a/memory.limit_in_bytes": "5000"}, 5000},
		"a path of the host":           {"0::/kubepods/pod1", files{"memory.max": "7000"}, 7000},
		"nonsense":                     {"lots\n0::/", files{"memory.max": "lots\n"}, 0},
		"the list is not there at all": {"-", files{"memory.max": "9000"}, 9000},
	} {
		dir := t.TempDir()
		own := filepath.Join(dir, "own")
		if c.own != "-" {
			write(t, own, c.own)
		}
		for f, text := range c.files {
			write(t, filepath.Join(dir, "fs", f), text)
		}
		if c.want == 0 {
			c.want = math.MaxInt64
		}
		if got := cgroupLimit(filepath.Join(dir, "fs"), own); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLimitMemory(t *testing.T) { //nolint:paralleltest // sets the process's memory limit
	before := debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	limitMemory(0, 600)
	if got := debug.SetMemoryLimit(-1); got != 640 {
		t.Errorf("a budget of 600 without a limit became %d, want four fifths of four thirds", got)
	}
	debug.SetMemoryLimit(math.MaxInt64)
	limitMemory(1000, 600)
	if got := debug.SetMemoryLimit(-1); got != 800 {
		t.Errorf("a limit of 1000 became %d, want four fifths", got)
	}
	limitMemory(5000, 600) // as GOMEMLIMIT would have set it
	if got := debug.SetMemoryLimit(-1); got != 800 {
		t.Errorf("a limit that was set became %d", got)
	}
}
