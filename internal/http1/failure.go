package http1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"sidecar/internal/message"
)

// ErrRefusedByReset is the cause of a message.FailureRefused where the app's port took the connection and reset it.
var ErrRefusedByReset = errors.New("connection refused: reset before anything was sent")

var (
	errUnasked  = errors.New("the app spoke before anything was sent")
	errNoAnswer = errors.New("timeout: the app did not answer in time")
	errClosed   = errors.New("reset: the app closed the connection without an answer")
)

// MalformedError is the cause of message.FailureMalformed: the received bytes are not an HTTP answer. Its text never
// quotes the answer, which may contain parts of the message.
type MalformedError string

func (e MalformedError) Error() string { return "malformed answer: " + string(e) }

const (
	errStatusLine = MalformedError("bad status line")
	errHeaderLine = MalformedError("bad header line")
	errTooLong    = MalformedError("header block larger than 64 KiB")
	errNotHTTP    = MalformedError("not HTTP/1")
	errNoMemory   = MalformedError("larger than 4 KiB while SIDECAR_MEMORY is used up")
)

// classify returns the failure of an exchange that had a connection.
func classify(ctx context.Context, c *conn, err error) (message.Failure, error) {
	malformed, isMalformed := errors.AsType[MalformedError](err)
	switch {
	case c.interrupted.Load():
		return Interrupted(ctx)
	case isMalformed:
		return message.FailureMalformed, malformed
	case timedOut(err):
		return message.FailureTimeout, errNoAnswer
	case errors.Is(err, io.EOF):
		return message.FailureReset, errClosed
	}
	return message.FailureReset, fmt.Errorf("reset: %w", err)
}

func timedOut(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// notConnected names the failure of an exchange that never had a connection.
func notConnected(ctx context.Context, err error) (message.Failure, error) {
	if ctx.Err() != nil {
		return Interrupted(ctx)
	}
	if _, unresolved := errors.AsType[*net.DNSError](err); !unresolved && timedOut(err) {
		return message.FailureRefused, fmt.Errorf("connect to the app: %w: %w", errNoAnswer, err)
	}
	return message.FailureRefused, fmt.Errorf("connect to the app: %w", err)
}

// Interrupted is the failure of an exchange that the end of ctx cut short.
func Interrupted(ctx context.Context) (message.Failure, error) {
	return message.FailureInterrupted, fmt.Errorf("interrupted: %w", context.Cause(ctx))
}
