package app

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// cgroupFiles hold the memory limit of the container: cgroup v2, then v1.
var cgroupFiles = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// MemoryLimit is what this process may use in bytes: the container's limit or GOMEMLIMIT, whichever is smaller; 0 when
// there is none or it cannot be known.
func MemoryLimit() int64 { return smaller(memoryLimit(cgroupFiles), debug.SetMemoryLimit(-1)) }

// smaller takes 0 and what the runtime says without GOMEMLIMIT for no limit.
func smaller(container, runtime int64) int64 {
	switch {
	case runtime == math.MaxInt64:
		return container
	case container == 0:
		return runtime
	}
	return min(container, runtime)
}

func memoryLimit(files []string) int64 {
	for _, name := range files {
		b, err := os.ReadFile(name) // #nosec G304 -- one of the constants above
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil || n <= 0 || n >= 1<<60 { // "max", and what v1 writes for it
			return 0
		}
		return n
	}
	return 0
}

// limitMemory lets the garbage collector work harder before the kernel ends the process. A limit that GOMEMLIMIT has
// set already stays.
func limitMemory(limit int64) {
	if limit > 0 && debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}
