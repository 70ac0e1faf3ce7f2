package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"sidecar/test/chaos/ledger"
)

// process is a child that is started again whenever it has ended, until it is to stay down.
type process struct {
	command func() *exec.Cmd
	ended   func(ledger.Exit) // may be nil

	politely sync.Mutex // one at a time asks it to end: a second request means "now"

	mu    sync.Mutex
	cmd   *exec.Cmd
	asked ledger.Exit // what asked for its next end
	over  bool
	done  chan struct{}
}

// restartDelay is how long a child stays away at least.
const restartDelay = 100 * time.Millisecond

func keep(command func() *exec.Cmd, ended func(ledger.Exit)) (*process, error) {
	p := &process{command: command, ended: ended, done: make(chan struct{})}
	if err := p.launch(); err != nil {
		return nil, err
	}
	go p.watch()
	return p, nil
}

func (p *process) launch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd := p.command()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	p.cmd, p.asked = cmd, ledger.Exit{Started: ledger.Now()}
	return nil
}

func (p *process) watch() {
	defer close(p.done)
	for {
		err := p.cmd.Wait()
		p.mu.Lock()
		over, exit := p.over, p.asked
		exit.At, exit.Code = ledger.Now(), p.cmd.ProcessState.ExitCode()
		p.mu.Unlock()
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			if status, ok := failed.Sys().(syscall.WaitStatus); ok && status.Signaled() {
				exit.Signal = status.Signal().String()
			}
		}
		if p.ended != nil {
			p.ended(exit)
		}
		if over {
			return
		}
		time.Sleep(restartDelay)
		if err := p.launch(); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, "chaos:", err)
			return
		}
	}
}

// signal sends s. An end that follows is wanted when s ends processes.
func (p *process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case s == syscall.SIGTERM && p.asked.Wanted:
		p.asked.Twice = true
	case s == syscall.SIGKILL, s == syscall.SIGTERM:
		p.asked.Wanted, p.asked.Asked, p.asked.AskedAt = true, s.String(), ledger.Now()
	}
	return p.cmd.Process.Signal(s)
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// stop ends the child permanently: politely, and after a while by force.
func (p *process) stop(patience time.Duration) {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	_ = p.signal(syscall.SIGCONT)
	_ = p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		p.mu.Lock()
		_ = p.cmd.Process.Kill() // this end was not asked for: the judge must see it
		p.mu.Unlock()
		<-p.done
	}
}

// again waits until another process than pid runs.
func (p *process) again(ctx context.Context, pid int) error {
	return until(ctx, time.Minute, "a new process", func() bool { return p.pid() != pid })
}

// until polls a condition.
func until(ctx context.Context, limit time.Duration, what string, ok func() bool) error {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if ok() {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return fmt.Errorf("waited %s for %s", limit, what)
}
