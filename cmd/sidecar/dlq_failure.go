package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"sidecar/internal/deadletter"
)

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
		return c.failed(err, "the dead-letter queue %s does not exist: sidecar plan prints what should, sidecar run declares it", q.Name())
	case errors.Is(err, deadletter.ErrInUse):
		return c.failed(err, "%s is in use: another operation runs on it or something else consumes it; try again when that has ended", q.Name())
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

// look ends a command that changes nothing: it writes what is left of the output and explains err. A reader who has gone,
// as head does, is no failure.
func (c *dlqCall) look(ctx context.Context, q *deadletter.Queue, err error) error {
	if ferr := c.out.Flush(); err == nil {
		err = ferr
	}
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return c.explain(ctx, q, err, "nothing was changed")
}
