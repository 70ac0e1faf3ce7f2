package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the resolution of the operating system's accounting: USER_HZ, 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// procStat is what /proc/PID/stat says of one process.
type procStat struct {
	parent int
	cpu    time.Duration // user and system, of all its threads
	ended  time.Duration // the same of children that have ended, and of theirs
}

func readStat(pid int) (procStat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, err
	}
	// The name in brackets may hold anything, spaces and brackets included.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 15 {
		return procStat{}, fmt.Errorf("/proc/%d/stat holds %d fields", pid, len(f))
	}
	var n [5]int
	for i, at := range []int{1, 11, 12, 13, 14} { // ppid, utime, stime, cutime, cstime
		if n[i], err = strconv.Atoi(f[at]); err != nil {
			return procStat{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
	}
	return procStat{parent: n[0], cpu: time.Duration(n[1]+n[2]) * tick, ended: time.Duration(n[3]+n[4]) * tick}, nil
}

// cpuOf is the CPU time of one process so far.
func cpuOf(pid int) (time.Duration, error) {
	s, err := readStat(pid)
	return s.cpu, err
}

// cpuOfTree is the CPU time of a process and of everything it has started.
func cpuOfTree(root int) (time.Duration, error) {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	children, cpu := map[int][]int{}, map[int]time.Duration{}
	for _, name := range names {
		pid, _ := strconv.Atoi(filepath.Base(name))
		s, err := readStat(pid)
		if err != nil {
			continue // it has ended meanwhile
		}
		children[s.parent] = append(children[s.parent], pid)
		cpu[pid] = s.cpu + s.ended
	}
	if _, there := cpu[root]; !there {
		return 0, fmt.Errorf("no process %d", root)
	}
	var sum time.Duration
	for todo := []int{root}; len(todo) > 0; {
		pid := todo[0]
		todo = append(todo[1:], children[pid]...)
		sum += cpu[pid]
	}
	return sum, nil
}

// memory is a process's resident memory in bytes: now, at its most, and now without pages of files, which processes
// share.
type memory struct{ now, peak, own int64 }

func memoryOf(pid int) (memory, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}, err
	}
	var m memory
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "VmRSS:":
			m.now = kib << 10
		case "VmHWM:":
			m.peak = kib << 10
		case "RssAnon:":
			m.own = kib << 10
		}
	}
	if m.now == 0 {
		return memory{}, fmt.Errorf("/proc/%d/status holds no VmRSS", pid)
	}
	return m, nil
}

// serverPID is the process that scripts/broker.sh or scripts/postgres.sh has started in dir, whose tree the server is.
// It is 0 for one from elsewhere (dir is empty) and for a container whose processes cannot be seen from here.
func serverPID(ctx context.Context, dir string) (int, error) {
	if dir == "" {
		return 0, nil
	}
	b, err := os.ReadFile(filepath.Join(dir, "pid"))
	if container, none := os.ReadFile(filepath.Join(dir, "container")); none == nil {
		name := strings.TrimSpace(string(container))
		b, err = exec.CommandContext(ctx, "docker", "inspect", "-f", "{{.State.Pid}}", name).Output()
	}
	if err != nil {
		return 0, fmt.Errorf("find the server's process: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("find the server's process: %w", err)
	}
	if _, err := readStat(pid); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	return pid, nil
}
