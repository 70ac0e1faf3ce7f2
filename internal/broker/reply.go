package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

// requesterTimeout bounds a question for a requester. The broker passes it on to the process that the address names,
// which may be any process and never answer.
const requesterTimeout = 2 * time.Second

// isDirectReply reports whether a message goes to the requester of a direct reply-to. The broker does not put it into a
// queue. It returns such a message whenever it is mandatory, also when the requester got it (before RabbitMQ 4.3), or
// never (since 4.3).
func isDirectReply(pub *message.Publication) bool {
	return pub.Exchange == "" && strings.HasPrefix(pub.Key, message.DirectReply+".")
}

// requesters asks the broker whether the requesters of direct replies are there: one question at a time, on a
// connection of its own. The address was written by the publisher of the request, and for many addresses that RabbitMQ
// has not made itself, or that were made in another cluster, it closes the connection.
type requesters struct {
	turn    chan struct{} // holds a value while no question is under way
	session *Session      // nil: none was needed yet
	channel *amqp.Channel
}

func newRequesters() requesters {
	r := requesters{turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r
}

// findRequester returns ErrNoRequester if the message is a direct reply to a client that does not consume replies. The
// other errors are ErrBlocked, ErrBusy and ErrDisconnected.
func (s *Session) findRequester(ctx context.Context, pub *message.Publication) error {
	if !isDirectReply(pub) {
		return nil
	}
	q := &s.requesters
	if _, err := await(ctx, s, q.turn); err != nil {
		return err
	}
	defer func() { q.turn <- struct{}{} }()
	if err := q.connect(ctx, s); err != nil {
		return fmt.Errorf("%w: find the requester: %w", ErrDisconnected, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), requesterTimeout)
	defer cancel()
	err := q.session.Do(ctx, "find the requester", func() error {
		_, err := q.channel.QueueDeclarePassive(pub.Key, false, false, false, false, nil)
		return err
	})
	if err == nil {
		return nil
	}
	q.channel = nil
	closed, _ := errors.AsType[*amqp.Error](err)
	switch {
	case errors.Is(err, ErrRefused), errors.Is(err, os.ErrDeadlineExceeded),
		closed != nil && (closed.Code == amqp.InternalError || closed.Code == amqp.FrameError):
		return fmt.Errorf("%w: %s", ErrNoRequester, err.Error()) // without its class: the message is the cause
	}
	return fmt.Errorf("%w: %w", ErrDisconnected, err)
}

// connect opens the channel for the questions of s if it is not open.
func (q *requesters) connect(ctx context.Context, s *Session) (err error) {
	if q.session == nil || q.session.Err() != nil {
		o := *s.options
		o.Name += " replies"
		o.Logger, o.Registerer, o.NotFound = nil, nil, nil // a requester that has gone is a 404
		if q.session, err = NewDialer(o).Dial(ctx); err != nil {
			return err
		}
		q.channel = nil
		context.AfterFunc(s.ctx, q.session.Close)
	}
	if q.channel == nil {
		q.channel, err = q.session.Channel(ctx)
	}
	return err
}
