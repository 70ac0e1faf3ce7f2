package declare

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Session is a broker connection, as *broker.Session provides it.
type Session interface {
	// Channel opens a channel.
	Channel(ctx context.Context) (*amqp.Channel, error)
	// Do runs a blocking client call under a deadline.
	Do(ctx context.Context, name string, fn func() error) error
}

// question asks the broker one thing. With noWait the broker answers only when it refuses.
type question func(ch *amqp.Channel, noWait bool) error

// prober asks the broker one thing at a time. The broker answers a refused question by closing the channel, so
// channels are thrown away; the connection stays.
type prober struct {
	s  Session
	ch *amqp.Channel

	note func(question) // instead of asking; the question counts as answered well
}

// ask runs one question. refusal is the broker's answer when it closed the channel over it; err is trouble with the
// connection, which answers nothing.
func (p *prober) ask(ctx context.Context, name string, q question) (refusal *amqp.Error, err error) {
	if p.note != nil {
		p.note(q)
		return nil, nil
	}
	if p.ch == nil || p.ch.IsClosed() {
		if p.ch, err = p.s.Channel(ctx); err != nil {
			return nil, fmt.Errorf("%s: open channel: %w", name, err)
		}
	}
	ch := p.ch
	err = p.s.Do(ctx, name, func() error { return q(ch, false) })
	if err == nil {
		return nil, nil
	}
	p.ch = nil
	var answer *amqp.Error
	if errors.As(err, &answer) && answer.Server && answersOnly(answer.Code) {
		return answer, nil
	}
	return nil, fmt.Errorf("%s: %w", name, err)
}

// answersOnly reports whether a code closes the channel only. All others close the connection.
func answersOnly(code int) bool {
	switch code {
	case amqp.AccessRefused, amqp.NotFound, amqp.ResourceLocked, amqp.PreconditionFailed:
		return true
	}
	return false
}

func (p *prober) close(ctx context.Context) {
	if ch := p.ch; ch != nil {
		_ = p.s.Do(ctx, "close channel", ch.Close) // an answer changes nothing: the channel is not used again
	}
}
