package app

import (
	"context"
	"runtime"
	"syscall"
	"time"
)

// How the number of cores in use follows the load, measured over coresInterval as the share of one core that the
// process has used. A sidecar's work is short system calls: on one core they follow one another, on several every
// message wakes threads on other cores and idle ones spin in search of work. So one core, until it is nearly used up.
const (
	coresInterval = time.Second
	coresMore     = 0.75 // of one core: from here on all may be used
	coresLess     = 0.50 // below this, one again
)

// cores keeps the Go scheduler on one core while one is enough for the load. GOMAXPROCS, from the environment or from
// the container's CPU limit, is the most that is ever used.
func (a *App) cores(ctx context.Context) error {
	limit := runtime.GOMAXPROCS(0)
	used, ok := cpuTime()
	if limit == 1 || !ok {
		return nil
	}
	now := 1
	runtime.GOMAXPROCS(now)
	defer runtime.GOMAXPROCS(limit)
	t := time.NewTicker(coresInterval)
	defer t.Stop()
	for last := time.Now(); ; {
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		total, _ := cpuTime()
		share := float64(total-used) / float64(max(time.Since(last), 1))
		used, last = total, time.Now()
		if next := coresFor(now, limit, share); next != now {
			now = next
			runtime.GOMAXPROCS(now)
			a.log.Debug("cores", "in_use", now, "share", share)
		}
	}
}

// coresFor is how many cores to use after an interval in which now of them were allowed and share of one was used.
func coresFor(now, limit int, share float64) int {
	switch {
	case share >= coresMore:
		return limit
	case share < coresLess:
		return 1
	}
	return now
}

// cpuTime is what the process has used of all cores so far, user and system.
func cpuTime() (used time.Duration, ok bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
