package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sidecar/internal/broker"
)

const (
	// connecting bounds the wait for the connection that publishes. Another one stands by then.
	connecting = 15 * time.Second
	// confirming bounds the wait for one confirm.
	confirming = 30 * time.Second
)

// publisher connects one that lives until stop is called.
func (q *Queue) publisher(ctx context.Context) (p *broker.Publisher, stop func(), err error) {
	p = broker.NewPublisher(q.dialer)
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
	return p, stop, nil
}

// publish is not interrupted by the end of an operation: whether the message has arrived must be known.
func publish(p *broker.Publisher, pub *broker.Publication) error {
	ctx, cancel := context.WithTimeout(context.Background(), confirming)
	defer cancel()
	return p.Publish(ctx, pub)
}

// alone reports whether a publish failed for a reason that lies in this message.
func alone(err error) bool {
	return errors.Is(err, broker.ErrInvalid) || errors.Is(err, broker.ErrTooLarge)
}
