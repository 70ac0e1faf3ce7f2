package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

// requesterTimeout bounds a question for a requester. The broker passes it on to the process that the address names,
// which may be any process and never answer.
const requesterTimeout = 2 * time.Second

// silentFor is how long a process that did not answer is not asked again: many messages for it would delay all other
// direct replies.
const silentFor = 30 * time.Second

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
	keep    func() bool   // the end of the publishing session no longer closes session
	channel *amqp.Channel
	silent  []silence // few: each took two timeouts
}

// silence is a process of the broker that did not answer a question.
type silence struct {
	process string
	until   time.Time
}

var errSilent = fmt.Errorf("%w: it did not answer", ErrNoRequester)

func newRequesters() requesters {
	r := requesters{turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r
}

// findRequester returns ErrNoRequester if the message is a direct reply to a client that does not consume replies, or
// does not answer. The other errors are ErrBlocked, ErrBusy (ctx ended before the answer) and ErrDisconnected.
func (s *Session) findRequester(ctx context.Context, pub *message.Publication) error {
	if !isDirectReply(pub) {
		return nil
	}
	if _, err := await(ctx, s, s.requesters.turn); err != nil {
		return err
	}
	address := pub.Key
	_, err := ask(ctx, s, func() (struct{}, error) {
		defer func() { s.requesters.turn <- struct{}{} }()
		return struct{}{}, s.requesters.find(s, address)
	}, func(struct{}) {})
	return err
}

// find asks for one requester. A connection whose other end is gone, or a broker that is busy, does not answer either,
// so only a second silence, on a new connection, is the requester's.
func (q *requesters) find(s *Session, address string) error {
	process, _, _ := strings.Cut(strings.TrimPrefix(address, message.DirectReply+"."), ".")
	now := time.Now()
	q.silent = slices.DeleteFunc(q.silent, func(x silence) bool { return now.After(x.until) })
	if slices.ContainsFunc(q.silent, func(x silence) bool { return x.process == process }) {
		return errSilent
	}
	for range 2 {
		if err := q.askOnce(s, address); !errors.Is(err, errSilent) {
			return err
		}
	}
	q.silent = append(q.silent, silence{process, time.Now().Add(silentFor)})
	return errSilent
}

// askOnce returns ErrNoRequester, which is errSilent if there was no answer and the connection was given up, or
// ErrDisconnected.
func (q *requesters) askOnce(s *Session, address string) error {
	if err := q.connect(s); err != nil {
		return fmt.Errorf("%w: find the requester: %w", ErrDisconnected, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), requesterTimeout)
	defer cancel()
	err := q.session.Do(ctx, "find the requester", func() error {
		_, err := q.channel.QueueDeclarePassive(address, false, false, false, false, nil)
		return err
	})
	if err == nil {
		return nil
	}
	q.channel = nil
	closed, _ := errors.AsType[*amqp.Error](err)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errSilent
	case errors.Is(err, ErrRefused),
		closed != nil && (closed.Code == amqp.InternalError || closed.Code == amqp.FrameError):
		return fmt.Errorf("%w: %s", ErrNoRequester, err.Error()) // without its class: the message is the cause
	}
	return fmt.Errorf("%w: %w", ErrDisconnected, err)
}

// connect opens the channel for the questions of s if it is not open.
func (q *requesters) connect(s *Session) (err error) {
	if q.session == nil || q.session.Err() != nil {
		o := *s.options
		o.Name += " replies"
		o.Logger, o.Registerer, o.Missing = nil, nil, nil // a requester that has gone is a 404
		next, err := NewDialer(o).Dial(s.ctx)
		if err != nil {
			return err
		}
		if q.session != nil {
			q.keep() // otherwise each session stays in memory until s ends
		}
		q.session, q.keep, q.channel = next, context.AfterFunc(s.ctx, next.Close), nil
	}
	if q.channel == nil {
		q.channel, err = q.session.Channel(s.ctx)
	}
	return err
}
