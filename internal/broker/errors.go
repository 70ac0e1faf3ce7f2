package broker

import (
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
	"sidecar/internal/message"
)

// ReturnedError is a message that the broker returned; it is an ErrUnroutable.
type ReturnedError = amqpwire.ReturnedError

// What can become of a call. Test with errors.Is; the text says more.
var (
	// ErrDisconnected: there is no connection, or it ended before the call could have an effect.
	ErrDisconnected = errors.New("not connected to the broker")
	// ErrUnknown: the message was sent, and no confirm came before the deadline or the end of the connection. It may
	// or may not have been taken.
	ErrUnknown = errors.New("outcome unknown")
	// ErrBlocked: the broker's memory or disk alarm blocks the connection; nothing was sent.
	ErrBlocked = errors.New("blocked by the broker's resource alarm")
	// ErrBusy: time ran out before a channel was free; nothing was sent.
	ErrBusy = errors.New("no channel in time")
	// ErrUnroutable: the message reached no queue, because no binding matches or the exchange is missing.
	ErrUnroutable = amqpwire.ErrUnroutable
	// ErrNoRequester: no client consumes replies at the address of the direct reply; nothing was sent. It is also
	// ErrUnroutable.
	ErrNoRequester = fmt.Errorf("no requester has this address: %w", ErrUnroutable)
	// ErrNacked: the broker did not take the message, for example because its queue is full.
	ErrNacked = errors.New("nacked by the broker")
	// ErrRefused: the broker closed the channel instead of taking the message; see RefusedError.
	ErrRefused = errors.New("refused by the broker")
	// ErrInvalid: the message cannot be written as AMQP; nothing was sent.
	ErrInvalid = amqpwire.ErrInvalid
	// ErrTooLarge: properties and headers do not fit one frame; nothing was sent.
	ErrTooLarge = amqpwire.ErrTooLarge
	// ErrUnavailable: the connection ended because of this call. A broker answers a consumer of a quorum queue without a
	// leader by closing the whole connection.
	ErrUnavailable = errors.New("the queue is not available")
	// ErrCancelled: the broker ended the subscription, because the queue was deleted or moved.
	ErrCancelled = errors.New("consumer cancelled by the broker")
)

// RefusedError is a channel that the broker closed on us, in its own words. A missing exchange (404) is also
// ErrUnroutable.
type RefusedError struct {
	Code int    // AMQP reply code: 403, 404, 406 …
	Text string // the broker's text: "NOT_FOUND - no exchange 'x' in vhost '/'"
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("refused by the broker: %d %s", e.Code, e.Text)
}

// Unwrap gives the client library's form of it.
func (e *RefusedError) Unwrap() error {
	return &amqp.Error{Code: e.Code, Reason: e.Text, Server: true, Recover: true}
}

// Is makes a RefusedError an ErrRefused and, for a missing exchange, an ErrUnroutable.
func (e *RefusedError) Is(target error) bool {
	return target == ErrRefused || target == ErrUnroutable && e.Code == amqp.NotFound
}

// failed adds to an error where the message was sent.
func failed(p *message.Publication, err error) error {
	return fmt.Errorf("publish to exchange %q with key %q: %w", p.Exchange, p.Key, err)
}
