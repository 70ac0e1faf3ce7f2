package dispatch

import (
	"context"
	"fmt"
	"time"

	"sidecar/internal/message"
)

// healthRequest is the whole request of a probe; nil if path is empty.
func (e *encoding) healthRequest(ep *endpoint, path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	target, err := requestTarget(path)
	if err != nil {
		return nil, err
	}
	return appendStart(nil, "GET", target, ep.host, e.version), nil
}

// Probe asks whether the app is there: a GET of the health path must give a 2xx; without a health path the app must
// accept a connection. Each probe has a connection of its own, so that it proves that the app still accepts, and an
// answer to a probe can never be taken for the answer to a message.
//
// errors.Is(err, ErrRefused) when no connection came about.
func (t *Target) Probe(ctx context.Context) error {
	deadline := time.Now().Add(t.healthTimeout)
	d := t.dialer
	if t.health == nil {
		d.tls = nil
	}
	c, err := d.dial(ctx, deadline)
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("probe: %w", context.Cause(ctx))
		}
		return fmt.Errorf("probe: %w: %w", ErrRefused, dialError(err))
	}
	defer c.close()
	if t.health == nil {
		return nil
	}
	return t.probeHealth(ctx, c, deadline)
}

func (t *Target) probeHealth(ctx context.Context, c *conn, deadline time.Time) error {
	c.bind(ctx)
	x := newAttempt(t.memory)
	defer x.release()
	head := append(x.request.out[:0], t.health...)
	head = t.encoding.authorization(head)
	head = append(head, "Accept: */*\r\nConnection: close\r\n\r\n"...)
	x.request.out = head
	c.rw.SetDeadline(deadline)
	_, _ = c.rw.Write(head) // an app may answer before it has read everything; if it does not, the read says why
	err := x.answer.read(c.rw)
	if err != nil {
		failure, cause := classify(c, err)
		if failure == message.FailureInterrupted {
			cause = context.Cause(ctx)
		}
		return fmt.Errorf("probe: %w", cause)
	}
	if x.answer.status/100 != 2 {
		return fmt.Errorf("probe: the app answered %d", x.answer.status)
	}
	return nil
}
