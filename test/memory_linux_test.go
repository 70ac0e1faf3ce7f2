package test

import (
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
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

// TestNoCoreDumps: a sidecar that was started with every permission to dump, and is made to by the runtime and by a
// signal, leaves no image of its memory: neither as a file nor piped to a program, which a limit of 0 would not
// prevent.
func TestNoCoreDumps(t *testing.T) {
	t.Parallel()
	env := valid()
	env["GOTRACEBACK"] = "crash"
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c", "ulimit -c unlimited; cd "+dir+" && exec "+program)
	cmd.Env, cmd.SysProcAttr = environ(env), dieWithTest()
	log := newOutput(t)
	log.of(cmd)
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	eventually(t, "the sidecar runs", func() bool { return log.mentions("listening") })

	limits := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/limits", cmd.Process.Pid)))(t)
	for line := range strings.Lines(string(limits)) {
		if rest, ok := strings.CutPrefix(line, "Max core file size"); ok {
			if f := strings.Fields(rest); len(f) < 2 || f[0] != "1" || f[1] != "1" {
				t.Errorf("the limits are %q, want 1 byte for both", f)
			}
		}
	}
	must.Do(t, cmd.Process.Signal(syscall.SIGABRT))
	_ = cmd.Wait()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.CoreDump() {
		t.Errorf("ended with %v: want a signal and no core", cmd.ProcessState)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("%v %v", files, err)
	}
}

// TestReleaseBinaryNeedsNoLibrary: what `make build` makes needs no libc, loads no library, and reveals nothing about the
// machine it was built on.
func TestReleaseBinaryNeedsNoLibrary(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("make", "-C", "..", "build").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const binary = "../bin/sidecar"
	info := must.Get(buildinfo.ReadFile(binary))(t)
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["CGO_ENABLED"] != "0" || settings["-trimpath"] != "true" {
		t.Errorf("built with %v", settings)
	}
	f := must.Get(elf.Open(binary))(t)
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("it is linked dynamically: %v", p.Type)
		}
	}
}
