package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"sidecar/internal/deadletter"
)

// action is what a command does to messages, in words.
type action struct {
	name string // redrive
	done string // redriven
	rest string // what to do when it ended before its end
	dry  bool   // it only counts
}

// actionResult is the one document that --json gives of an action.
type actionResult struct {
	Queue  string `json:"queue"`
	Action string `json:"action"`
	DryRun bool   `json:"dry_run,omitempty"`
	deadletter.Progress
	Error string `json:"error,omitempty"`
}

// act does a to at most limit messages, 0 for any number: it shows how far do has come, and reports how it ended.
func (c *call) act(ctx context.Context, q *deadletter.Queue, a action, limit int,
	do func(deadletter.Report) (deadletter.Progress, error)) error {
	m := c.meter(a.done, limit, c.quiet)
	p, err := do(m.report)
	m.stop()
	return c.report(ctx, q, a, &p, err)
}

// report ends an action: it says what has been done, also when err is why it ended, and explains err.
func (c *call) report(ctx context.Context, q *deadletter.Queue, a action, p *deadletter.Progress, err error) error {
	rest := fmt.Sprintf("%d %s, %s", p.Done, a.done, a.rest)
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
		r := actionResult{Queue: q.Name(), Action: a.name, DryRun: a.dry, Progress: *p}
		if failed != nil {
			r.Error = failed.Error()
		}
		if err := c.document(r); err != nil {
			return err
		}
	} else if failed == nil || p.Total > 0 || p.Scanned > 0 {
		c.say("%s", outcome(a, p))
	}
	if err := c.out.Flush(); err != nil && failed == nil {
		return c.failed(err, "%d %s, but the output could not be written: %v", p.Done, a.done, err)
	}
	return failed
}

// outcome is one line on what an action has done.
func outcome(a action, p *deadletter.Progress) string {
	total := number(p.Total, "message")
	text := fmt.Sprintf("%d of %s %s", p.Done, total, a.done)
	switch {
	case a.name == "import":
		text = number(p.Done, "message") + " " + a.done
	case p.Total == 0:
		text = "the queue is empty: nothing to " + a.name
	case a.dry:
		text = fmt.Sprintf("%d of %s would be %s; nothing was changed", p.Matched, total, a.done)
	case p.Matched == 0:
		text = fmt.Sprintf("nothing to %s: none of %s was chosen", a.name, total)
	}
	if p.Failed > 0 {
		text += fmt.Sprintf(", %d could not be and still parked", p.Failed)
	}
	if p.Skipped > 0 {
		text += fmt.Sprintf(", %d of other services left alone", p.Skipped)
	}
	if k := p.Canary; k.Sent > 0 {
		text += fmt.Sprintf("; canary: %d sent, %d good, %d bad", k.Sent, k.Good, k.Bad)
	}
	return text
}

// missing complains about ids that were asked for and are not there.
func (c *call) missing(p *deadletter.Progress) error {
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

// explain makes a sentence of an error. rest says what has been done, and what to do about what has not.
func (c *call) explain(ctx context.Context, q *deadletter.Queue, err error, rest string) error {
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
		return c.misuse("%w", plainly(err))
	case errors.Is(err, deadletter.ErrNotFound):
		return c.failed(err, "%s; sidecar dlq list prints the references and ids of those there are", oneLine(err))
	case errors.Is(err, deadletter.ErrCanary):
		return c.failed(err, "%s", oneLine(err))
	case unreachable:
		return c.failed(err, "the broker cannot be reached (%s): %s", oneLine(err), rest)
	}
	return c.failed(err, "%s: %s", oneLine(err), rest)
}

// look runs a command that changes nothing, writes the rest of its output and explains its error. A reader that has
// closed the pipe, as head does, is not a failure.
func (c *call) look(ctx context.Context, command func(*deadletter.Queue) error) error {
	q, err := c.open()
	if err != nil {
		return err
	}
	err = command(q)
	if ferr := c.out.Flush(); err == nil {
		err = ferr
	}
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return c.explain(ctx, q, err, "nothing was changed")
}
