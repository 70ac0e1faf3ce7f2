package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"sidecar/internal/deadletter"
)

// action is what a command does to messages, in words.
type action struct {
	name string // redrive
	done string // redriven
	rest string // what to do when it ended before its end
	dry  bool   // it only counts
	pipe bool   // standard output carries the messages
	to   string // another queue that messages are moved to

	limit int // how many messages at the most; 0 = any number
}

// actionResult is the one document that --json gives of an action.
type actionResult struct {
	Queue  string `json:"queue"`
	Action string `json:"action"`
	DryRun bool   `json:"dry_run,omitempty"`
	deadletter.Progress
	Error string `json:"error,omitempty"`
}

const stoppedBySignal = "stopped by a signal"

// act does a: it shows the progress of do, unless the messages themselves are on the screen, and reports how it ended.
func (c *call) act(ctx context.Context, q *deadletter.Queue, a *action,
	do func(deadletter.Report) (deadletter.Progress, error)) error {
	now := time.Now()
	m := &meter{w: c.stderr, done: a.done, limit: a.limit, began: now, shown: now}
	if _, screen := terminalWidth(c.stdout); c.quiet || a.pipe && screen {
		m.w = io.Discard
	}
	p, err := do(m.report)
	m.stop()
	c.audit(ctx, q, a, &p, err)
	return c.report(ctx, q, a, &p, err)
}

// audit logs who did what, if the queue was changed or was meant to be. A terminal shows it to the one who did it.
func (c *call) audit(ctx context.Context, q *deadletter.Queue, a *action, p *deadletter.Progress, err error) {
	if _, screen := terminalWidth(c.stderr); screen || a.dry || a.name == "export" || p.Done+p.Failed == 0 {
		return
	}
	r := deadletter.Audit{Action: a.name, Queue: q.Name(), By: q.By(), State: deadletter.Succeeded, To: a.to, Progress: *p}
	if err != nil {
		r.State, r.Error = deadletter.Failed, oneLine(err)
	}
	if err != nil && ctx.Err() != nil {
		r.State, r.Error = deadletter.Cancelled, stoppedBySignal
	}
	r.Log(c.log)
}

// report ends an action: it says what has been done, also when err is why it ended, and explains err.
func (c *call) report(ctx context.Context, q *deadletter.Queue, a *action, p *deadletter.Progress, err error) error {
	rest := fmt.Sprintf("%d %s, %s", p.Done, a.done, a.rest)
	if p.Scanned == 0 {
		rest = "nothing was changed"
	}
	failed := c.explainError(ctx, err, rest)
	if failed == nil && p.Failed > 0 {
		failed = c.failed("%s could not be %s, still parked: sidecar dlq show says why",
			number(p.Failed, "message"), a.done)
	}
	if failed == nil {
		failed = c.missing(p, a.limit)
	}
	say := c.say
	if a.pipe {
		say = c.note
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
		say("%s", outcome(a, p))
	}
	if err := c.out.Flush(); err != nil && failed == nil {
		return c.failed("%d %s, but the output could not be written: %v", p.Done, a.done, err)
	}
	return failed
}

// outcome is one line on what an action has done.
func outcome(a *action, p *deadletter.Progress) string {
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
		text += fmt.Sprintf(", %d failed and still parked", p.Failed)
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
func (c *call) missing(p *deadletter.Progress, limit int) error {
	unmet := c.filter.Unmet()
	switch found := p.Matched + p.Skipped; {
	case len(unmet) == 0, limit > 0 && found >= limit:
		return nil
	case len(unmet) == 1:
		return c.failed("no parked message %q, or it does not meet the other conditions: sidecar "+
			"dlq list prints those there are", unmet[0])
	}
	return c.failed("%d of the messages asked for were not found, %q the first: sidecar dlq "+
		"list prints those there are", len(unmet), unmet[0])
}

// explainError makes a sentence of an error. rest says what has been done, and what to do about what has not.
func (c *call) explainError(ctx context.Context, err error, rest string) error {
	_, unreachable := errors.AsType[*net.OpError](err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return c.failed("%s: %s", stoppedBySignal, rest)
	case errors.Is(err, deadletter.ErrMissing):
		return c.failed("%s; check SIDECAR_SERVICE, SIDECAR_DLQ and the virtual host of SIDECAR_AMQP_URL; sidecar run "+
			"declares it in mode declare, if the broker allows it; sidecar check says what it refuses", oneLine(err))
	case errors.Is(err, deadletter.ErrInUse):
		return c.failed("%s; try again when that has ended", oneLine(err))
	case errors.Is(err, deadletter.ErrInvalid):
		return c.misuse("%w", plainly(err))
	case errors.Is(err, deadletter.ErrNotFound):
		return c.failed("%s; sidecar dlq list prints the references and ids of those there are", oneLine(err))
	case errors.Is(err, deadletter.ErrCanary):
		return c.failed("%s", oneLine(err))
	case unreachable:
		return c.failed("the broker cannot be reached (%s): %s", oneLine(err), rest)
	}
	return c.failed("%s: %s", oneLine(err), rest)
}

// readOnly runs a command that changes nothing, writes the rest of its output and explains its error. A reader that has
// closed the pipe, as head does, is not a failure.
func (c *call) readOnly(ctx context.Context, command func(deadletter.Queues) error) error {
	q, err := c.open()
	if err != nil {
		return err
	}
	err = cmp.Or(command(q), c.out.Flush()) // it flushes after an error, too
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return c.explainError(ctx, err, "nothing was changed")
}

const (
	meterLine = 10 * time.Second // between two lines where there is no terminal
	meterBar  = 24               // columns, at most
)

// meter shows the progress of an action on standard error: a bar on a terminal, a line now and then elsewhere.
type meter struct {
	w     io.Writer
	width int    // of the terminal; 0 = not a terminal
	done  string // the word for what is done to messages
	limit int    // how many messages at the most; 0 = any number

	began time.Time // the rate is taken from then on: not while a canary waits
	part  float64   // what was done before
	shown time.Time // the last line, where there is no terminal
}

// report shows the progress. A terminal that does not take it delays only the end of the operation, when all messages
// that stay have been requeued.
func (m *meter) report(p deadletter.Progress) {
	if columns, ok := terminalWidth(m.w); ok { // the window may have another size now
		m.width = columns
	}
	now := time.Now()
	text := m.text(&p, now)
	switch {
	case m.width > 0: // a line that wraps could not be written over
		text = "\r" + cut(text, m.width-1) + "\x1b[K"
	case now.Sub(m.shown) < meterLine:
		return
	default:
		text, m.shown = text+"\n", now
	}
	_, _ = io.WriteString(m.w, text)
}

// stop makes room on a terminal for the result.
func (m *meter) stop() {
	if m.width > 0 {
		_, _ = io.WriteString(m.w, "\r\x1b[K")
	}
}

func (m *meter) text(p *deadletter.Progress, now time.Time) string {
	part := float64(p.Scanned) / float64(max(p.Total, 1))
	if m.limit > 0 { // it may be reached before the end of the queue
		part = max(part, float64(p.Matched)/float64(m.limit))
	}
	k := p.Canary
	if k.Sent > 0 && !k.Done {
		m.began, m.part = now, min(part, 1)
		return fmt.Sprintf("canary: waiting for %d of %d verdicts", k.Sent-k.Good, k.Sent)
	}
	seconds := max(now.Sub(m.began).Seconds(), 1e-9)
	text := fmt.Sprintf("%d %s, %.0f/s", p.Done, m.done, float64(max(p.Done-k.Sent, 0))/seconds)
	if p.Total == 0 { // the total of an import or export is not known
		return text
	}
	part = min(part, 1)
	text = fmt.Sprintf("%3.0f%%  %s, %d of %d read", 100*part, text, p.Scanned, p.Total)
	if left := seconds * (1 - part) / max(part-m.part, 1e-9); left < (100 * time.Hour).Seconds() { // infinite at the start
		text += ", " + time.Duration(left*float64(time.Second)).Round(time.Second).String() + " left"
	}
	if bar := min(meterBar, m.width-len(text)-len("[] ")-1); bar >= 3 { // what the text leaves
		full := int(part * float64(bar))
		text = "[" + strings.Repeat("#", full) + strings.Repeat("-", bar-full) + "] " + text
	}
	return text
}
