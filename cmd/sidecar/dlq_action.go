package main

import (
	"context"
	"strconv"

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
func (c *dlqCall) report(ctx context.Context, q *deadletter.Queue, a action, dry bool, p *deadletter.Progress, err error) error {
	rest := strconv.Itoa(p.Done) + " " + a.done + ", " + a.rest
	if p.Scanned == 0 {
		rest = "nothing was changed"
	}
	failed := c.explain(ctx, q, err, rest)
	if failed == nil && p.Failed > 0 {
		failed = c.failed(nil, "%s could not be %s, still parked: sidecar dlq show tells what is special about what is left", number(p.Failed, "message"), a.done)
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
		text += "; canary: " + strconv.Itoa(k.Sent) + " sent, " + strconv.Itoa(k.Good) + " good, " + strconv.Itoa(k.Bad) + " bad"
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
		return c.failed(deadletter.ErrNotFound, "no parked message %q, or none that meets the other conditions: sidecar dlq list prints those there are", unmet[0])
	}
	return c.failed(deadletter.ErrNotFound, "%d of the messages asked for were not found, %q the first: sidecar dlq list prints those there are", len(unmet), unmet[0])
}
