package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

// child starts a shell and returns its id and the first line it prints.
func child(t *testing.T, script string) (pid int, line string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "sh", "-c", script)
	in := must.Get(c.StdinPipe())(t)
	out := must.Get(c.StdoutPipe())(t)
	must.Do(t, c.Start())
	t.Cleanup(func() { _ = in.Close(); _ = c.Wait() }) // the scripts end with their input
	line = must.Get(bufio.NewReader(out).ReadString('\n'))(t)
	return c.Process.Pid, strings.TrimSpace(line)
}

// burn is a shell loop that needs some CPU.
const burn = `i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done`

func TestCPUOfATreeIsThatOfAllItsProcesses(t *testing.T) {
	t.Parallel()
	pid, line := child(t, `{ (`+burn+`; echo done; read -r x) <&3 & } 3<&0; wait`)
	if line != "done" {
		t.Fatalf("the child says %q", line)
	}
	own := must.Get(cpuOf(pid))(t)
	all := must.Get(cpuOfTree(pid))(t)
	if all-own < 2*tick {
		t.Errorf("the tree has used %v, its root %v: what a child did is missing", all, own)
	}
	if own, err := cpuOf(os.Getpid()); err != nil || own < 0 {
		t.Errorf("this process: %v, %v", own, err)
	}
}

func TestProcessesThatAreGone(t *testing.T) {
	t.Parallel()
	c := exec.CommandContext(t.Context(), "true")
	must.Do(t, c.Run())
	if _, err := cpuOf(c.Process.Pid); err == nil {
		t.Error("it has used CPU")
	}
	if _, err := cpuOfTree(c.Process.Pid); err == nil {
		t.Error("it has a tree")
	}
	if _, err := memoryOf(c.Process.Pid); err == nil {
		t.Error("it has memory")
	}
}

func TestMemoryIsNowAndAtMost(t *testing.T) {
	t.Parallel()
	pid, _ := child(t, `echo up; read -r x`)
	m := must.Get(memoryOf(pid))(t)
	if m.own < 1<<12 || m.now <= m.own || m.peak < m.now || m.now > 1<<30 {
		t.Errorf("a shell has %+v bytes", m)
	}
}

func TestBrokersProcess(t *testing.T) {
	pid, _ := child(t, `echo up; read -r x`)
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	if got, err := serverPID(t.Context(), ""); got != 0 || err != nil {
		t.Errorf("of a broker from elsewhere: %d, %v", got, err)
	}
	if _, err := serverPID(t.Context(), dir); err == nil {
		t.Error("an empty directory holds a broker")
	}
	write("pid", fmt.Sprintln(pid))
	if got, err := serverPID(t.Context(), dir); got != pid || err != nil {
		t.Errorf("%d, %v, want %d", got, err, pid)
	}
	write("pid", "nonsense")
	if _, err := serverPID(t.Context(), dir); err == nil {
		t.Error("nonsense is a process")
	}

	// In docker the engine is asked; a machine in between, as of Docker Desktop, shows no such process here.
	tools := t.TempDir()
	docker := func(says string) {
		t.Helper()
		script := "#!/bin/sh\n[ \"$*\" = 'inspect -f {{.State.Pid}} some-broker' ] || exit 1\necho " + says + "\n"
		must.Do(t, os.WriteFile(filepath.Join(tools, "docker"), []byte(script), 0o700))
	}
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	write("container", "some-broker\n")
	docker(strconv.Itoa(pid))
	if got, err := serverPID(t.Context(), dir); got != pid || err != nil {
		t.Errorf("in docker: %d, %v, want %d", got, err, pid)
	}
	docker("999999999")
	if got, err := serverPID(t.Context(), dir); got != 0 || err != nil {
		t.Errorf("in a docker whose processes are not here: %d, %v", got, err)
	}
	write("container", "another\n")
	if _, err := serverPID(t.Context(), dir); err == nil {
		t.Error("docker failed without an error")
	}
}

func TestPauseEndsWithTheBenchmark(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	r := &rig{ctx: ctx}
	if err := r.pause(time.Millisecond); err != nil {
		t.Error(err)
	}
	stop()
	if err := r.pause(time.Hour); err == nil {
		t.Error("paused although the benchmark was asked to stop")
	}
}
