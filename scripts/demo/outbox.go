package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// program is one of examples/outbox: it writes orders and their messages into the database.
type program struct {
	source string
	argv   []string
}

// programs are those that the machine can run.
func (o *options) programs() (list []program) {
	const dir = "examples/outbox/"
	if o.python != "" {
		list = append(list, program{source: dir + "python/orders.py", argv: []string{o.python, dir + "python/orders.py"}})
	}
	if o.node != "" {
		list = append(list, program{source: dir + "node/orders.js",
			argv: []string{"node", filepath.Join(o.node, "orders.js")}})
	}
	if o.golang != "" {
		list = append(list, program{source: dir + "go/main.go", argv: []string{o.golang}})
	}
	return list
}

// emitted is what the programs said they did, and what of it the app got.
type emitted struct {
	committed, rolledBack []string // message ids
	app                   *follower
	arrived               map[string]int
}

// emit runs each program and waits for the messages of what it committed.
func (s *stage) emit(ctx context.Context) (*emitted, error) {
	all := &emitted{app: s.listen(), arrived: map[string]int{}}
	for _, p := range s.programs() {
		n := len(all.committed)
		if err := s.runProgram(ctx, p, all); err != nil {
			return all, err
		}
		err := s.sidecar.await(ctx, "done with the outbox", func() bool {
			all.listen()
			return !slices.ContainsFunc(all.committed, func(id string) bool { return all.arrived[id] == 0 })
		})
		if err != nil {
			return all, err
		}
		s.screen.line("", "app", fmt.Sprintf("has the %d messages of what was committed, and no other",
			len(all.committed)-n), good)
	}
	return all, nil
}

var placed = regexp.MustCompile(`(?m)^(committed|rolled back) +order \d+: message (\S+)`)

// runProgram shows what the program prints, and remembers its messages.
func (s *stage) runProgram(ctx context.Context, p program, all *emitted) error {
	s.screen.say(s.screen.paint(strong, p.source))
	out, err := output(ctx, append(os.Environ(), "DATABASE_URL="+s.postgres), p.argv...)
	s.screen.indented(out)
	for _, found := range placed.FindAllStringSubmatch(string(out), -1) {
		if found[1] == "committed" {
			all.committed = append(all.committed, found[2])
		} else {
			all.rolledBack = append(all.rolledBack, found[2])
		}
	}
	return err
}

// publishOverHTTP does it with the command that a user would type.
func (s *stage) publishOverHTTP(ctx context.Context, o *order) error {
	line := fmt.Sprintf(`curl -s -i --json '%s' -H 'Idempotency-Key: %s' http://%s/publish/default/greeting`, o.body,
		o.id, s.sidecar.addresses().Publish)
	s.screen.say(s.screen.paint(strong, "$ "+line))
	out, err := output(ctx, os.Environ(), "sh", "-c", line)
	status, _, _ := bytes.Cut(out, []byte("\r\n"))
	s.screen.indented(status)
	if err == nil && !bytes.Contains(status, []byte(" 204 ")) {
		err = fmt.Errorf("published over HTTP: %s", out)
	}
	return err
}

// output is what a command prints. The error holds what it complained about.
func output(ctx context.Context, environ []string, argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = environ
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	if err != nil {
		return out, fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return out, nil
}

func (e *emitted) listen() {
	for _, news := range e.app.news() {
		e.arrived[news.message]++
	}
}

// sum says in one line how many of the messages arrived.
func (e *emitted) sum() string {
	arrived := func(ids []string) (n int) {
		for _, id := range ids {
			n += e.arrived[id]
		}
		return n
	}
	return fmt.Sprintf("%d committed, %d arrived; %d rolled back, %d arrived",
		len(e.committed), arrived(e.committed), len(e.rolledBack), arrived(e.rolledBack))
}

// broken lists how what arrived differs from what was promised.
func (e *emitted) broken() (wrong []string) {
	e.listen()
	for _, id := range e.committed {
		if n := e.arrived[id]; n != 1 {
			wrong = append(wrong, fmt.Sprintf("the message %s was committed and arrived %d times", id, n))
		}
	}
	for _, id := range e.rolledBack {
		if n := e.arrived[id]; n != 0 {
			wrong = append(wrong, fmt.Sprintf("the message %s was rolled back and arrived %d times", id, n))
		}
	}
	return wrong
}
