package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"

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
