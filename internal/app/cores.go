package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// The number of cores in use follows the load: every coresInterval the share of one core that the process has used, or
// waited for on a busy machine. A sidecar's work is short system calls: on one core they follow one another; on several
// every message wakes threads on other cores, and idle ones spin in search of work. So it uses one core until that is
// nearly used up.
const (
	coresInterval = time.Second
	coresMore     = 0.75 // of one core: from here on all may be used
	coresLess     = 0.50 // below this, one again
)

// cores keeps the Go scheduler on one core while one is enough for the load. GOMAXPROCS, from the environment or from
// the container's CPU limit, is the most that is ever used.
func (a *App) cores(ctx context.Context, every time.Duration) error {
	limit := runtime.GOMAXPROCS(0)
	if limit == 1 {
		return nil
	}
	wanted := cpuWanted(tasks)
	now := 1
	runtime.GOMAXPROCS(now)
	defer runtime.GOMAXPROCS(limit)
	t := time.NewTicker(every)
	defer t.Stop()
	for last := time.Now(); ; {
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		total := cpuWanted(tasks)
		share := float64(total-wanted) / float64(max(time.Since(last), 1))
		wanted, last = total, time.Now()
		if next := coresFor(now, limit, share); next != now {
			now = next
			runtime.GOMAXPROCS(now)
			a.log.Debug("cores", "in_use", now, "share", share)
		}
	}
}

// coresFor is how many cores to use after an interval in which now of them were allowed and share of one was wanted.
func coresFor(now, limit int, share float64) int {
	switch {
	case share >= coresMore:
		return limit
	case share < coresLess:
		return 1
	}
	return now
}

// tasks has a directory for every thread of the process.
const tasks = "/proc/self/task"

// cpuWanted is how long the threads of the process have run so far, and how long they could have run but had to wait
// for a core. Where the kernel does not say, it is what they have used.
func cpuWanted(dir string) time.Duration {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return cpuUsed()
	}
	var total time.Duration
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name(), "schedstat")) // #nosec G304 -- below /proc/self
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && e.Name() != strconv.Itoa(os.Getpid()) {
				continue // a thread that has ended meanwhile
			}
			return cpuUsed()
		}
		var ran, waited int64
		if _, err := fmt.Sscan(string(b), &ran, &waited); err != nil {
			return cpuUsed()
		}
		total += time.Duration(ran + waited)
	}
	return total
}

// cpuUsed is what the process has used of all cores so far, user and system.
func cpuUsed() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
