package amqpwire

import (
	"errors"
	"fmt"
)

var (
	// ErrUnroutable means that the message reached no queue.
	ErrUnroutable = errors.New("unroutable")
	// ErrInvalid means that the message cannot be written as AMQP; nothing was sent.
	ErrInvalid = errors.New("not a valid AMQP message")
	// ErrTooLarge means that properties and headers do not fit one frame; nothing was sent.
	ErrTooLarge = errors.New("properties and headers do not fit one frame")
)

// ReturnedError is a message that the broker returned, because no queue accepted it.
type ReturnedError struct {
	Exchange, Key string
	Code          int
	Text          string
}

func (e *ReturnedError) Error() string {
	return fmt.Sprintf("returned by exchange %q for key %q: %d %s", e.Exchange, e.Key, e.Code, e.Text)
}

// Is makes a ReturnedError an ErrUnroutable.
func (e *ReturnedError) Is(target error) bool { return target == ErrUnroutable }

// ProtocolError ends a connection whose peer breaks the protocol: a reader that guesses could mistake one message for
// another.
type ProtocolError string

func (e ProtocolError) Error() string { return string(e) }

// Errors of a peer that breaks the protocol.
const (
	ErrNotAMQP    = ProtocolError("the peer does not speak AMQP 0-9-1")
	ErrPeerTLS    = ProtocolError("the peer speaks TLS, and the connection is plain")
	errBadDeliver = ProtocolError("the broker sent a malformed basic.deliver")
	errBadContent = ProtocolError("the broker sent a malformed content header")
	errBadBody    = ProtocolError("the broker sent a body of another length than announced")
	errFrameEnd   = ProtocolError("the broker sent a frame without its end mark")
	errFrameSize  = ProtocolError("the broker sent a frame larger than negotiated")
	errBadReturn  = ProtocolError("the broker sent a malformed basic.return")
	errBadBlocked = ProtocolError("the broker sent a malformed connection.blocked")
	errBadConfirm = ProtocolError("the broker confirmed a message that was never published")
	errBadClose   = ProtocolError("the broker sent a malformed channel.close")
	errContent    = ProtocolError("the broker announced a body larger than any it can take")
	errForeign    = ProtocolError("the broker announced a large body that was not asked for")
)
