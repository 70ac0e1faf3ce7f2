package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"sidecar/internal/message"
)

// ErrRefused is wrapped by what Probe returns when nothing listens: connection refused, no such host or socket, or no
// connection within the time.
var ErrRefused = errors.New("app refused the connection")

var (
	errRefusedByReset = errors.New("connection refused: reset before anything was sent")
	errUnasked        = errors.New("the app spoke before anything was sent")
	errNoAnswer       = errors.New("timeout: the app did not answer in time")
	errClosed         = errors.New("reset: the app closed the connection without an answer")
)

// malformedError is the cause of FailureMalformed: what came back is not an HTTP answer.
type malformedError string

func (e malformedError) Error() string { return "malformed answer: " + string(e) }

// classify names the failure of an attempt that got as far as a connection.
func classify(c *conn, err error) (message.Failure, error) {
	if c.interrupted.Load() {
		return message.FailureInterrupted, err
	}
	var malformed malformedError
	var timeout net.Error
	switch {
	case errors.As(err, &malformed):
		return message.FailureMalformed, malformed
	case errors.As(err, &timeout) && timeout.Timeout():
		return message.FailureTimeout, errNoAnswer
	case errors.Is(err, io.EOF):
		return message.FailureReset, errClosed
	}
	return message.FailureReset, fmt.Errorf("reset: %w", err)
}

// undialled reports an attempt that never had a connection.
func undialled(ctx context.Context, err error, o *message.Outcome) {
	if ctx.Err() != nil {
		interrupted(ctx, o)
		return
	}
	o.Failure, o.Err = message.FailureRefused, dialError(err)
}

func dialError(err error) error {
	if isTimeout(err) {
		return fmt.Errorf("dial timeout: %w", err)
	}
	return fmt.Errorf("connect to the app: %w", err)
}

func isTimeout(err error) bool {
	var dns *net.DNSError
	var timeout net.Error
	return !errors.As(err, &dns) && errors.As(err, &timeout) && timeout.Timeout()
}

func interrupted(ctx context.Context, o *message.Outcome) {
	o.Failure = message.FailureInterrupted
	o.Err = fmt.Errorf("interrupted: %w", context.Cause(ctx))
}
