package test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"sidecar/internal/testkit/must"
)

// terminal is a command that runs on a terminal of that many columns, with all three streams.
type terminal struct {
	t      testing.TB
	cmd    *exec.Cmd
	keys   *os.File
	exited chan struct{}

	mu     sync.Mutex
	screen strings.Builder
}

func onTerminal(t testing.TB, columns int, env map[string]string, args ...string) *terminal {
	t.Helper()
	return commandOnTerminal(t, columns, exec.Command(program, args...), env)
}

func commandOnTerminal(t testing.TB, columns int, cmd *exec.Cmd, env map[string]string) *terminal {
	t.Helper()
	keys := must.Get(os.OpenFile("/dev/ptmx", os.O_RDWR, 0))(t)
	fd := int(keys.Fd())
	must.Do(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n := must.Get(unix.IoctlGetInt(fd, unix.TIOCGPTN))(t)
	must.Do(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(columns)}))
	line := must.Get(os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0))(t)
	x := &terminal{t: t, cmd: cmd, keys: keys, exited: make(chan struct{})}
	x.cmd.Env, x.cmd.SysProcAttr = environ(env), dieWithTest()
	x.cmd.SysProcAttr.Setsid, x.cmd.SysProcAttr.Setctty = true, true // it is the terminal of that process, as shells need it
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = line, line, line
	must.Do(t, x.cmd.Start())
	_ = line.Close()
	go x.watch()
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill()
		<-x.exited
		_ = keys.Close()
	})
	return x
}

// watch reads until the command has closed the terminal.
func (x *terminal) watch() {
	buf := make([]byte, 4096)
	for {
		n, err := x.keys.Read(buf)
		x.mu.Lock()
		x.screen.Write(buf[:n])
		x.mu.Unlock()
		if err != nil {
			break
		}
	}
	_ = x.cmd.Wait()
	close(x.exited)
}

// seen is all that was written, with the terminal's own line ends taken back.
func (x *terminal) seen() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.ReplaceAll(x.screen.String(), "\r\n", "\n")
}

func (x *terminal) await(text string) {
	x.t.Helper()
	eventually(x.t, text, func() bool { return strings.Contains(x.seen(), text) })
}

func (x *terminal) press(keys string) {
	x.t.Helper()
	must.Get(x.keys.WriteString(keys))(x.t)
}

func (x *terminal) ends(code int) {
	x.t.Helper()
	eventually(x.t, "the end of the command", func() bool {
		select {
		case <-x.exited:
			return true
		default:
			return false
		}
	})
	if got := x.cmd.ProcessState.ExitCode(); got != code {
		x.t.Errorf("exit %d, want %d:\n%s", got, code, x.seen())
	}
}

// TestDLQAsksOnATerminal: only the queue's name deletes anything, and it is clear beforehand how much.
func TestDLQAsksOnATerminal(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	sc.parkIDs(503, "a", "b")
	sc.parkIDs(422, "c")
	x := onTerminal(t, 100, sc.env, "dlq", "discard", "--all")
	x.await("3 of 3 messages in " + sc.dlq() + " would be discarded permanently. Type the queue's name to go on: ")
	must.Do(t, x.cmd.Process.Signal(syscall.SIGINT))
	x.ends(1)
	if n := sc.ready(sc.dlq()); n != 3 || !strings.Contains(x.seen(), "stopped by a signal: nothing was discarded") {
		t.Errorf("%d left:\n%s", n, x.seen())
	}

	x = onTerminal(t, 100, sc.env, "dlq", "discard", "--all")
	x.press("yes\n")
	x.ends(1)
	if n := sc.ready(sc.dlq()); n != 3 || !strings.Contains(x.seen(), "wrong queue name: nothing was discarded") {
		t.Errorf("%d left:\n%s", n, x.seen())
	}

	x = onTerminal(t, 100, sc.env, "dlq", "discard", "--status", "503")
	x.await("2 of 3 messages in " + sc.dlq() + " would be discarded permanently")
	sc.parkIDs(503, "later") // it was not asked about
	x.press(sc.dlq() + "\n")
	x.ends(0)
	if got := sc.listedIDs(); !slices.Equal(got, []string{"c", "later"}) || !strings.Contains(x.seen(), "messages discarded\n") {
		t.Errorf("%q are left:\n%s", got, x.seen())
	}
}

// TestDLQOnATerminal: a bar shows the progress while it lasts, and the result takes its place.
func TestDLQOnATerminal(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	sc.parkIDs(503, "first")
	sc.parkIDs(503, numbered("m", 29)...)
	x := onTerminal(t, 100, sc.env, "dlq", "redrive", "--all", "--rate", "20/s", "--limit", "20")
	x.await("\r[##")
	x.ends(0)
	if seen := x.seen(); !strings.Contains(seen, "% ") || !strings.Contains(seen, " left") || !strings.HasSuffix(seen, "\r\x1b[K20 of 30 messages redriven\n") {
		t.Errorf("%q", seen)
	}
	x = onTerminal(t, 100, sc.env, "dlq", "redrive", "--all", "--rate", "20/s", "--quiet")
	x.ends(0)
	if seen := x.seen(); seen != "10 of 10 messages redriven\n" {
		t.Errorf("%q", seen)
	}
	x = onTerminal(t, 100, sc.env, "dlq", "import")
	x.ends(64)
	if !strings.Contains(x.seen(), "give a file") {
		t.Errorf("%s", x.seen())
	}
}

// TestTextLog: on a terminal the log is short lines of text.
func TestTextLog(t *testing.T) {
	t.Parallel()
	x := onTerminal(t, 100, valid())
	x.await(" info  started  version=")
	x.await(` warn  broker connection failed  error="dial tcp 127.0.0.1:1: connect: connection refused" fix="nothing listens there`)
	x.press("\x03")
	x.ends(0)
	if strings.Contains(x.seen(), `"msg"`) {
		t.Error(x.seen())
	}
}
