package test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

// TestIdleMemory: what the kernel says about a sidecar that waits, without the pages of the program: all sidecars of a node
// share these, and how many of them are in memory is the kernel's choice. TestBinarySize bounds them.
func TestIdleMemory(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("LOG_LEVEL", "info")
	s := launchBinary(t, shipped(t), sc.env).listening().awaitReady()
	time.Sleep(2 * time.Second) // idle is what is measured
	if kib := ofStatus(t, s.cmd.Process.Pid, "RssAnon"); kib > 6<<10 {
		t.Errorf("%d KiB, the limit is 6 MiB", kib)
	}
}

// TestMemoryOfABacklog: what waits in the broker costs nothing here. The backlog is larger than the limit, and the app
// takes its time.
func TestMemoryOfABacklog(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("LOG_LEVEL", "info", "CONCURRENCY", "5", "PREFETCH", "20").seed()
	const size, count, limit = 64 << 10, 1000, 48 << 10 // bytes, messages, KiB
	gate := make(chan struct{})
	sc.app.otherwise(func(*delivery) answer { return answer{status: 200, gate: gate} })
	for ids := range slices.Chunk(numbered("m", count), 100) {
		list := messages(ids...)
		for i := range list {
			list[i].Body = make([]byte, size)
		}
		sc.sendMessage(list...)
	}
	s := launchBinary(t, shipped(t), sc.env).listening().awaitReady()
	eventually(t, "a full window", func() bool { return sc.ready(sc.queue()) == count-20 })
	stays(t, 2*time.Second, "the window stays as it is", func() bool { return sc.ready(sc.queue()) == count-20 })
	close(gate)
	eventually(t, "an empty queue", func() bool { return sc.ready(sc.queue()) == 0 && s.metric("sidecar_inflight_messages") == 0 })
	if peak := peakRSS(t, s.cmd.Process.Pid); peak > limit {
		t.Errorf("%d KiB at its peak with %d MiB waiting in the broker, the limit is %d KiB", peak, size*count>>20, limit)
	}
	sc.settledAll(s, 0)
}

// peakRSS is the largest resident set that the process ever had, in KiB.
func peakRSS(t testing.TB, pid int) (kib int) {
	t.Helper()
	return ofStatus(t, pid, "VmHWM")
}

// ofStatus is a figure in the kernel's status of a process, in KiB.
func ofStatus(t testing.TB, pid int, name string) (kib int) {
	t.Helper()
	text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))(t)
	for line := range strings.Lines(string(text)) {
		if n, _ := fmt.Sscanf(line, name+": %d kB", &kib); n == 1 {
			return kib
		}
	}
	t.Fatal("no " + name)
	return 0
}
