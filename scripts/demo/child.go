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
	"syscall"
	"time"
)

// child is a process of the demonstration. It writes to a file and not to a pipe, so that it can outlive the
// demonstration, and it runs in a process group of its own, so that Ctrl-C reaches only the demonstration, which then
// stops its children in order.
type child struct {
	name, log string
	cmd       *exec.Cmd
	exited    chan error
	address   string // where it listens, once known
}

func startChild(o options, name string, environ []string, argv ...string) (*child, error) {
	c := &child{name: name, log: filepath.Join(o.dir, name+".log"), exited: make(chan error, 1)}
	f, err := os.Create(c.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	c.cmd = exec.Command(argv[0], argv[1:]...)
	c.cmd.Env = environ
	c.cmd.Stdout, c.cmd.Stderr = f, f
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { c.exited <- c.cmd.Wait() }()
	pid := filepath.Join(o.dir, name+".pid")
	return c, os.WriteFile(pid, []byte(strconv.Itoa(c.cmd.Process.Pid)+"\n"), 0o600)
}

// stop ends the child with SIGTERM and reports a child that did not end well.
func (c *child) stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", c.name, err)
	}
	select {
	case err := <-c.exited:
		c.exited <- err
		if err != nil {
			return fmt.Errorf("%s did not end well: %w", c.name, err)
		}
		return nil
	case <-time.After(patience):
		_ = c.cmd.Process.Kill()
		return fmt.Errorf("%s did not stop within %v of SIGTERM", c.name, patience)
	}
}

// await polls ready until it is true, the child ends or patience does.
func (c *child) await(ctx context.Context, what string, ready func() bool) error {
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case err := <-c.exited:
			c.exited <- err
			return fmt.Errorf("%s ended before it was %s: %w\n%s", c.name, what, cause(err), c.tail())
		case <-deadline:
			return fmt.Errorf("%s was not %s after %v\n%s", c.name, what, patience, c.tail())
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// cause makes an error of a good end too: ending early is never what was asked.
func cause(err error) error {
	if err == nil {
		return errors.New("exit code 0")
	}
	return err
}

func (c *child) output() []byte {
	b, _ := os.ReadFile(c.log)
	return b
}

// tail is the end of the child's log, for the one who has to find out why.
func (c *child) tail() []byte {
	all := lines(c.output())
	return bytes.Join(all[max(0, len(all)-15):], []byte("\n"))
}

// lines splits what was written so far into whole lines; a last one that is still being written is left out.
func lines(b []byte) [][]byte {
	all := bytes.Split(b, []byte("\n"))
	return all[:len(all)-1]
}
