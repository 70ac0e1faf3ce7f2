package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sidecar/internal/broker"
)

const (
	// connecting bounds the wait for the connection that publishes; the reader's session is up by then.
	connecting = 15 * time.Second
	// confirming bounds the wait for one confirm.
	confirming = 30 * time.Second
)

// stream connects to publish. It lives until stop is called.
func (q *Queue) stream(ctx context.Context) (stream *broker.Stream, stop func(), err error) {
	p := broker.NewPublisher(q.dialer)
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.Run(run) // ends with run and in no other way
	}()
	stop = func() {
		cancel()
		<-ended
	}
	for limit := time.Now().Add(connecting); !p.Connected(); {
		if time.Now().After(limit) {
			stop()
			return nil, nil, fmt.Errorf("%w: no connection to publish on", broker.ErrDisconnected)
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			stop()
			return nil, nil, err
		}
	}
	if stream, err = p.Stream(ctx); err != nil {
		stop()
		return nil, nil, err
	}
	return stream, stop, nil
}

// send puts one message into the stream. It is not interrupted by the end of an operation: whether the message has
// arrived must be known. The function it returns waits for the confirm.
func send(p *broker.Stream, pub *broker.Publication) (confirmed func() error, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), confirming)
	defer cancel()
	r, err := p.Send(ctx, pub)
	if err != nil {
		return nil, err
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), confirming)
		defer cancel()
		return r.Wait(ctx)
	}, nil
}

// alone reports whether a publish failed for a reason of this message only.
func alone(err error) bool {
	return errors.Is(err, broker.ErrInvalid) || errors.Is(err, broker.ErrTooLarge) || errors.Is(err, ErrUnread)
}
