package test

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"
)

// rss is the memory of the process that is in RAM, in bytes.
func (s *sidecar) rss() int {
	s.t.Helper()
	return ofStatus(s.t, s.cmd.Process.Pid, "VmRSS") << 10
}

// TestMaxBodyMustFitIntoMemory: a message that could never be held is refused at the start, whatever the prefetch.
func TestMaxBodyMustFitIntoMemory(t *testing.T) {
	t.Parallel()
	limited := func(more ...string) map[string]string {
		env := map[string]string{"GOMEMLIMIT": "100MiB"}
		for i := 0; i < len(more); i += 2 {
			env[more[i]] = more[i+1]
		}
		return env
	}
	refused(t, limited("SIDECAR_MAX_BODY", "76MiB"), "SIDECAR_MAX_BODY", "SIDECAR_MEMORY, which is 75MiB")
	refused(t, limited("SIDECAR_MEMORY", "20MiB", "SIDECAR_MAX_BODY", "21MiB"), "SIDECAR_MAX_BODY")
	refused(t, limited("SIDECAR_MEMORY", "100MiB"), "SIDECAR_MEMORY")
	refused(t, limited("SIDECAR_PUBLISH_ADDR", "127.0.0.1:0", "SIDECAR_PUBLISH_MAX_BODY", "76MiB"), "SIDECAR_PUBLISH_MAX_BODY")
	for _, fits := range []map[string]string{limited("SIDECAR_PREFETCH", "1000"), limited("SIDECAR_MAX_BODY", "75MiB")} {
		env := valid()
		maps.Copy(env, fits)
		if r := runBriefly(t, env); r.code != -1 {
			t.Errorf("%v: exit %d: %s", fits, r.code, r.all())
		}
	}
}

// TestMemoryIsBoundedByTheWindow: a backlog of large messages and an app that does not answer. What is held is the
// window, not the backlog. The collector may let the heap grow to twice what is in use; the rest is an idle sidecar's
// 16 MiB and as much as one more window for what is being read and given back.
func TestMemoryIsBoundedByTheWindow(t *testing.T) {
	t.Parallel()
	const (
		mib      = 1 << 20
		prefetch = 8
		backlog  = 120
	)
	sc := newScene(t).with("CONCURRENCY", "4", "PREFETCH", fmt.Sprint(prefetch), "MAX_BODY", "1MiB", "LOG_LEVEL", "info").seed()
	gate := make(chan struct{})
	sc.app.otherwise(func(*delivery) answer { return answer{status: 200, gate: gate} })
	body := []byte(strings.Repeat("x", mib))
	ids := numbered("m", backlog)
	for _, id := range ids {
		m := message(id)
		m.Body = body
		sc.sendMessage(m)
	}
	s := launchBinary(t, shipped(t), sc.env).listening().awaitReady()
	eventually(t, "one attempt under way", func() bool { return s.metric("sidecar_inflight_messages") > 0 })
	eventually(t, "a full window", func() bool { return sc.ready(sc.queue()) <= backlog-prefetch })
	limit := 16*mib + 2*prefetch*mib + prefetch*mib
	if held := s.rss(); held > limit {
		t.Errorf("%d MiB while the app holds, the limit is %d", held/mib, limit/mib)
	}
	close(gate)
	peak := 0
	eventually(t, "the backlog is done", func() bool {
		peak = max(peak, s.rss())
		return s.metric("sidecar_messages_settled_total", `outcome="ack"`) >= backlog
	})
	t.Logf("at most %.1f MiB", float64(peak)/mib)
	if peak > limit {
		t.Errorf("%d MiB while the backlog of %d MiB was worked off, the limit is %d", peak/mib, backlog, limit/mib)
	}
	sc.settledAll(s, 0)
}

// TestIdleMemory: what the kernel says about a sidecar that waits. Four fifths of it are pages of the program itself,
// which all sidecars of a node share.
func TestIdleMemory(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("LOG_LEVEL", "info")
	s := launchBinary(t, shipped(t), sc.env).listening().awaitReady()
	time.Sleep(5 * time.Second) // idle is what is measured
	rss := s.rss()
	t.Logf("%.1f MiB", float64(rss)/(1<<20))
	if rss > 17<<20 {
		t.Errorf("idle RSS is %.1f MiB, the limit is 17", float64(rss)/(1<<20))
	}
}

// TestMemoryOfABacklog: what waits in the broker costs nothing here. The backlog is larger than the limit, and the app
// takes its time.
func TestMemoryOfABacklog(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("LOG_LEVEL", "info", "CONCURRENCY", "5", "PREFETCH", "20").seed()
	const size, count, limit = 64 << 10, 1600, 48 << 10 // bytes, messages, KiB
	gate := make(chan struct{})
	sc.app.otherwise(func(*delivery) answer { return answer{status: 200, gate: gate} })
	batch := make([]string, 0, 100)
	for i, id := range numbered("m", count) {
		if batch = append(batch, id); len(batch) < cap(batch) && i < count-1 {
			continue
		}
		list := messages(batch...)
		for j := range list {
			list[j].Body = make([]byte, size)
		}
		sc.sendMessage(list...)
		batch = batch[:0]
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
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if n, _ := fmt.Sscanf(line, name+": %d kB", &kib); n == 1 {
			return kib
		}
	}
	t.Fatal("no " + name)
	return 0
}
