package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"

	"sidecar/internal/deadletter"
)

// action is what a command does to messages, in words.
type action struct {
	name string // redrive
	done string // redriven
	rest string // what to do when it ended before its end
}

// actionResult is the one document that --json gives of an action.
type actionResult struct {
	Queue  string `json:"queue"`
	Action string `json:"action"`
	DryRun bool   `json:"dry_run,omitempty"`
	deadletter.Progress
	Error string `json:"error,omitempty"`
}

// report ends an action: it says what has been done, also when err is why it ended, and explains err.
func (c *dlqCall) report(ctx context.Context, q *deadletter.Queue, a action, dry bool, p *deadletter.Progress,
	err error) error {
	rest := strconv.Itoa(p.Done) + " " + a.done + ", " + a.rest
	if p.Scanned == 0 {
		rest = "nothing was changed"
	}
	failed := c.explain(ctx, q, err, rest)
	if failed == nil && p.Failed > 0 {
		failed = c.failed(nil, "%s could not be %s, still parked: sidecar dlq show says why",
			number(p.Failed, "message"), a.done)
	}
	if failed == nil {
		failed = c.missing(p)
	}
	if c.json {
		r := actionResult{Queue: q.Name(), Action: a.name, DryRun: dry, Progress: *p}
		if failed != nil {
			r.Error = failed.Error()
		}
		if err := c.document(r); err != nil {
			return err
		}
	} else if failed == nil || p.Total > 0 || p.Scanned > 0 {
		c.say("%s", outcome(a, dry, p))
	}
	if err := c.out.Flush(); err != nil && failed == nil {
		return c.failed(err, "%d %s, but the output could not be written: %v", p.Done, a.done, err)
	}
	return failed
}

// outcome is one line on what an action has done.
func outcome(a action, dry bool, p *deadletter.Progress) string {
	total := number(p.Total, "message")
	text := strconv.Itoa(p.Done) + " of " + total + " " + a.done
	switch {
	case a.name == "import":
		text = number(p.Done, "message") + " " + a.done
	case p.Total == 0:
		text = "the queue is empty: nothing to " + a.name
	case dry:
		text = strconv.Itoa(p.Matched) + " of " + total + " would be " + a.done + "; nothing was changed"
	case p.Matched == 0:
		text = "nothing to " + a.name + ": none of " + total + " was chosen"
	}
	if p.Failed > 0 {
		text += ", " + strconv.Itoa(p.Failed) + " could not be and still parked"
	}
	if p.Skipped > 0 {
		text += ", " + strconv.Itoa(p.Skipped) + " of other services left alone"
	}
	if k := p.Canary; k.Sent > 0 {
		text += "; canary: " + strconv.Itoa(k.Sent) + " sent, " + strconv.Itoa(k.Good) + " good, " + strconv.Itoa(k.Bad) +
			" bad"
	}
	return text
}

// missing complains about ids that were asked for and are not there.
func (c *dlqCall) missing(p *deadletter.Progress) error {
	unmet := c.filter.Unmet()
	switch found := p.Matched + p.Skipped; {
	case len(unmet) == 0, c.limit > 0 && found >= c.limit:
		return nil
	case len(unmet) == 1:
		return c.failed(deadletter.ErrNotFound, "no parked message %q, or it does not meet the other conditions: sidecar "+
			"dlq list prints those there are", unmet[0])
	}
	return c.failed(deadletter.ErrNotFound, "%d of the messages asked for were not found, %q the first: sidecar dlq "+
		"list prints those there are", len(unmet), unmet[0])
}

// interactive reports whether there is a terminal to ask on.
func (c *dlqCall) interactive() bool {
	_, readsTerminal := terminalWidth(c.stdin)
	_, showsTerminal := terminalWidth(c.stderr)
	return readsTerminal && showsTerminal
}

// confirm wants the queue's name typed before anything is deleted. The name, because a yes is typed by habit.
func (c *dlqCall) confirm(ctx context.Context, q *deadletter.Queue, a action, p *deadletter.Progress) error {
	_, _ = fmt.Fprintf(c.stderr, "%d of %s in %s would be %s permanently. Type the queue's name to go on: ",
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
		return c.failed(nil, "wrong queue name: nothing was %s", a.done)
	case <-ctx.Done():
		_, _ = fmt.Fprintln(c.stderr)
		return c.failed(ctx.Err(), "stopped by a signal: nothing was %s", a.done)
	}
}

// failure is how a command ends badly: a sentence that says what to do next, and the error behind it.
type failure struct {
	text string
	err  error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }

// failed makes a failure of what is behind it, which may be nil.
func (c *dlqCall) failed(err error, format string, args ...any) error {
	return &failure{c.flags.Name() + ": " + printable(fmt.Sprintf(format, args...)), err}
}

// explain makes a sentence of an error. rest says what has been done, and what to do about what has not.
func (c *dlqCall) explain(ctx context.Context, q *deadletter.Queue, err error, rest string) error {
	_, unreachable := errors.AsType[*net.OpError](err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return c.failed(err, "stopped by a signal: %s", rest)
	case errors.Is(err, deadletter.ErrMissing):
		return c.failed(err, "the dead-letter queue %s does not exist: sidecar plan prints what should, sidecar run "+
			"declares it", q.Name())
	case errors.Is(err, deadletter.ErrInUse):
		return c.failed(err, "%s is in use: another operation runs on it or something else consumes it; try again when "+
			"that has ended", q.Name())
	case errors.Is(err, deadletter.ErrInvalid):
		return c.misuse("%s", strings.TrimPrefix(oneLine(err), deadletter.ErrInvalid.Error()+": "))
	case errors.Is(err, deadletter.ErrNotFound):
		return c.failed(err, "%s; sidecar dlq list prints the references and ids of those there are", oneLine(err))
	case errors.Is(err, deadletter.ErrCanary):
		return c.failed(err, "%s", oneLine(err))
	case unreachable:
		return c.failed(err, "the broker cannot be reached (%s): %s", oneLine(err), rest)
	}
	return c.failed(err, "%s: %s", oneLine(err), rest)
}

// oneLine is the text of an error, which may be several joined ones.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}

// look ends a command that changes nothing: it writes the rest of the output and explains err. A reader that has closed
// the pipe, as head does, is not a failure.
func (c *dlqCall) look(ctx context.Context, q *deadletter.Queue, err error) error {
	if ferr := c.out.Flush(); err == nil {
		err = ferr
	}
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return c.explain(ctx, q, err, "nothing was changed")
}
