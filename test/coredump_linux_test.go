package test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"sidecar/internal/testkit/must"
)

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
