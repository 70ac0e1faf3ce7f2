package deadletter

import (
	"context"
	"errors"
	"time"

	"sidecar/internal/broker"
)

// confirming bounds the wait for one confirm.
const confirming = 30 * time.Second

// errNoRoom: the headers of a message leave no room for those that it needs to be published again.
var errNoRoom = errors.New("no room in its headers")

// stream connects to publish, on a session of its own that must be closed: an alarm blocks a connection that publishes,
// and the acks must go through.
func (q *Queue) stream(ctx context.Context) (*broker.Session, *broker.Stream, error) {
	s, err := q.dialer.Dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	stream, err := s.Stream(ctx)
	if err != nil {
		s.Close()
	}
	return s, stream, err
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

// onlyThisMessage reports whether a publish failed for a reason of this message only.
func onlyThisMessage(err error) bool {
	return errors.Is(err, broker.ErrInvalid) || errors.Is(err, broker.ErrTooLarge) || errors.Is(err, ErrUnread) ||
		errors.Is(err, errNoRoom)
}
