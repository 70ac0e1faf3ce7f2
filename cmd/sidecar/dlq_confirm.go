package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"sidecar/internal/deadletter"
)

// interactive reports whether there is somebody to ask.
func (c *dlqCall) interactive() bool {
	_, hears := terminalWidth(c.stdin)
	_, sees := terminalWidth(c.stderr)
	return hears && sees
}

// confirm wants the queue's name typed before anything is deleted. The name, because a yes is typed by habit.
func (c *dlqCall) confirm(ctx context.Context, q *deadletter.Queue, a action, p *deadletter.Progress) error {
	_, _ = fmt.Fprintf(c.stderr, "%d of %s in %s would be %s for good. Type the queue's name to go on: ",
		p.Matched, number(p.Total, "message"), q.Name(), a.done)
	typed := make(chan string, 1)
	go func() { // a terminal cannot be read with a context; the process ends soon after it
		line, _ := bufio.NewReader(c.stdin).ReadString('\n')
		typed <- line
	}()
	select {
	case line := <-typed:
		if strings.TrimSpace(line) == q.Name() {
			return nil
		}
		return c.failed(nil, "that is not the queue's name: nothing was %s", a.done)
	case <-ctx.Done():
		_, _ = fmt.Fprintln(c.stderr)
		return c.failed(ctx.Err(), "stopped by a signal: nothing was %s", a.done)
	}
}
