package dispatch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sidecar/internal/http1"
	"sidecar/internal/message"
)

// healthRequest is the whole request of a probe; nil without a health path.
func healthRequest(ep *http1.Endpoint, o *Options) ([]byte, error) {
	if o.HealthPath == "" {
		return nil, nil
	}
	target, err := http1.RequestTarget(o.HealthPath)
	if err != nil {
		return nil, err
	}
	return appendStart(nil, "GET", target, ep.Host, o.Version), nil
}

// ErrRefused is wrapped by what Probe returns when nothing listens: connection refused, no such host or socket, or no
// connection within the time.
var ErrRefused = errors.New("app refused the connection")

// Probe asks whether the app is there: a GET of the health path must give a 2xx; without a health path the app must
// accept a connection. Each probe has a connection of its own, so that it proves that the app still accepts, and an
// answer to a probe can never be taken for the answer to a message.
//
// errors.Is(err, ErrRefused) when no connection came about.
func (t *Target) Probe(ctx context.Context) error {
	deadline := time.Now().Add(t.o.HealthTimeout)
	status := http.StatusOK
	var failure message.Failure
	var err error
	if t.health == nil {
		failure, err = t.client.Connect(ctx, deadline)
	} else {
		status, failure, err = t.probeHealth(ctx, deadline)
	}
	switch {
	case failure == message.FailureRefused:
		return fmt.Errorf("probe: %w: %w", ErrRefused, err)
	case failure != message.FailureNone:
		return fmt.Errorf("probe: %w", err)
	case status/100 != 2:
		return fmt.Errorf("probe: the app answered %d", status)
	}
	return nil
}

func (t *Target) probeHealth(ctx context.Context, deadline time.Time) (int, message.Failure, error) {
	x := newAttempt(t, deadline)
	defer x.release()
	x.answer.dapr = false
	head := t.encoding.authorization(append(x.exchange.Head[:0], t.health...))
	x.exchange.Head = append(head, "Accept: */*\r\nConnection: close\r\n\r\n"...)
	failure, err := t.client.Once(ctx, x.exchange)
	return x.exchange.Answer.Status, failure, err
}
