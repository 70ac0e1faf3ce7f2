package app

import (
	"math"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// MemoryLimit returns how many bytes this process may use: the limit of its cgroup or GOMEMLIMIT, whichever is smaller;
// 0 when there is no limit or it is unknown.
func MemoryLimit() int64 {
	limit := cgroupLimit("/sys/fs/cgroup", "/proc/self/cgroup")
	if own := debug.SetMemoryLimit(-1); own > 0 { // GOMEMLIMIT=0 asks for constant collection, not for no memory
		limit = min(limit, own)
	}
	if limit == math.MaxInt64 {
		return 0
	}
	return limit
}

// cgroupLimit returns the smallest limit of the cgroup of the process and of those above it, of versions 1 and 2, and
// math.MaxInt64 when there is none. In a container the root of the mount is often the cgroup itself, even if the path
// of the process says otherwise. own is the list of the process's cgroups as in cgroups(7).
func cgroupLimit(root, own string) int64 {
	limit := int64(math.MaxInt64)
	read := func(dir, below, name string) {
		for p := path.Clean("/" + below); ; p = path.Dir(p) {
			limit = min(limit, readLimit(path.Join(dir, p, name)))
			if p == "/" {
				return
			}
		}
	}
	list, _ := os.ReadFile(own) // #nosec G304 -- a constant; where it does not exist the roots are read
	for line := range strings.SplitSeq(string(list)+"\n0::/\n0:memory:/", "\n") {
		fields := strings.SplitN(line, ":", 3)
		switch {
		case len(fields) < 3:
		case fields[1] == "":
			read(root, fields[2], "memory.max")
		case slices.Contains(strings.Split(fields[1], ","), "memory"):
			read(path.Join(root, "memory"), fields[2], "memory.limit_in_bytes")
		}
	}
	return limit
}

// readLimit returns math.MaxInt64 for a file that does not exist or names no limit.
func readLimit(name string) int64 {
	b, _ := os.ReadFile(name) // #nosec G304 -- below the mount of the cgroups
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || n <= 0 || n >= 1<<60 { // "max", and what version 1 writes for it
		return math.MaxInt64
	}
	return n
}

// limitMemory lets the garbage collector work harder before the kernel ends the process: from four fifths of the memory
// limit on. The runtime keeps free memory up to there, so what is above it is for garbage and for the pages of the
// program. If no limit is known, the limit is taken to be 4/3 of the budget. A limit that GOMEMLIMIT has set stays.
func limitMemory(limit, budget int64) {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return
	}
	if limit <= 0 {
		limit = budget / 3 * 4
	}
	debug.SetMemoryLimit(limit / 5 * 4)
}
