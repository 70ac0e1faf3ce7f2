package publish

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/httpguard"
)

// code says for programs what became of a message: the member "code" of a problem document, and a metric label.
type code string

const (
	published    code = "published"
	invalid      code = "invalid"            // the request is wrong, and will be the next time
	unauthorized code = "unauthorized"       // no token, or a wrong one
	forbidden    code = "forbidden"          // not allowed here, or the broker refuses it
	notFound     code = "not_found"          // no such path
	unroutable   code = "unroutable"         // no exchange, or no queue would take it
	badMethod    code = "method_not_allowed" //
	tooLarge     code = "too_large"          // the body, for us or for the broker
	slow         code = "slow"               // a body that held memory that others needed
	misdirected  code = "misdirected"        // the Host header names another server
	nacked       code = "nacked"             // a queue did not take it, others may have it
	blocked      code = "blocked"            // the broker's alarm
	busy         code = "busy"               // too much at once
	disconnected code = "disconnected"       // no connection to the broker
	stopping     code = "stopping"           // the sidecar ends
	unknown      code = "unknown"            // sent, and no answer: it may have been published
	internal     code = "internal"           // a bug
)

// codes are those that a message to a known exchange may end with.
var codes = []code{published, invalid, forbidden, unroutable, tooLarge, slow, nacked, blocked, busy, disconnected, stopping, unknown, internal}

// failure is why a message was not published, or not to all of its queues.
type failure struct {
	code   code
	status int
	detail string
	err    error // from the broker; may be nil
}

func (f *failure) Error() string { return string(f.code) + ": " + f.detail }

func (f *failure) Unwrap() error { return f.err }

func bad(format string, args ...any) *failure {
	return &failure{code: invalid, status: http.StatusBadRequest, detail: fmt.Sprintf(format, args...)}
}

func denied(format string, args ...any) *failure {
	return &failure{code: forbidden, status: http.StatusForbidden, detail: fmt.Sprintf(format, args...)}
}

func unavailable(c code, detail string) *failure {
	return &failure{code: c, status: http.StatusServiceUnavailable, detail: detail}
}

var (
	errBusy     = unavailable(busy, "Too many messages at once (SIDECAR_PUBLISH_MAX_INFLIGHT). Nothing was sent.")
	errStopping = unavailable(stopping, "The sidecar stops. Nothing was sent.")
)

// explain says what an error of package broker is. What it does not know may have been sent.
func explain(err error) *failure {
	refused, isRefused := errors.AsType[*broker.RefusedError](err)
	answer := func(c code, status int, format string, args ...any) *failure {
		return &failure{code: c, status: status, detail: fmt.Sprintf(format, args...), err: err}
	}
	said := httpguard.Sentence(err)
	switch {
	case errors.Is(err, broker.ErrUnknown): // first: it may say why, which is one of the others
		return answer(unknown, http.StatusGatewayTimeout,
			"The message was sent and the broker has not answered: it may have been published. Send it again with the same "+
				"Idempotency-Key, by which its consumers can tell. (%s)", said)
	case isRefused && refused.Code == amqp.PreconditionFailed && strings.Contains(refused.Text, "size"):
		return answer(tooLarge, http.StatusRequestEntityTooLarge, "The broker takes no body of this size: %s", said)
	case isRefused && refused.Code == amqp.AccessRefused:
		return answer(forbidden, http.StatusForbidden, "The broker does not let the sidecar publish this: %s", said)
	case errors.Is(err, broker.ErrUnroutable):
		return answer(unroutable, http.StatusNotFound, "The message reached no queue and was not kept: %s", said)
	case errors.Is(err, broker.ErrTooLarge):
		return answer(invalid, http.StatusBadRequest, "Routing key, properties and headers together do not fit a frame of the broker: %s", said)
	case errors.Is(err, broker.ErrInvalid):
		return answer(invalid, http.StatusBadRequest, "This is no message that AMQP can carry: %s", said)
	case errors.Is(err, broker.ErrNacked): // of one queue or more, which is all that the broker says
		return answer(nacked, http.StatusServiceUnavailable,
			"A queue did not take the message and may be full; other queues of the exchange may have it. Send it again with the same "+
				"Idempotency-Key, by which their consumers can tell. (%s)", said)
	case isRefused:
		return answer(nacked, http.StatusServiceUnavailable, "The broker did not take the message: %s", said)
	case errors.Is(err, broker.ErrBlocked):
		return answer(blocked, http.StatusServiceUnavailable, "The broker has an alarm and takes no messages. Nothing was sent.")
	case errors.Is(err, broker.ErrBusy):
		return answer(busy, http.StatusServiceUnavailable, "There was no room on the connection in time. Nothing was sent.")
	case errors.Is(err, broker.ErrDisconnected):
		return answer(disconnected, http.StatusServiceUnavailable, "There is no connection to the broker. Nothing was sent.")
	}
	return answer(unknown, http.StatusGatewayTimeout, "The message may have been published. (%s)", said)
}

// retryAfter is how many seconds a client should wait.
func retryAfter(c code) string {
	if c == blocked || c == disconnected || c == stopping {
		return "5"
	}
	return "1"
}
