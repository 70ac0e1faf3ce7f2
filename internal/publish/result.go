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

// code is the result of a message for programs: the member "code" of a problem document, and a metric label.
type code string

const (
	published    code = "published"
	invalid      code = "invalid"            // the request is wrong, and will be the next time
	unauthorized code = "unauthorized"       // no token, or a wrong one
	forbidden    code = "forbidden"          // not allowed here, or the broker refuses it
	notFound     code = "not_found"          // no such path
	unroutable   code = "unroutable"         // the exchange, a binding or the requester of a reply is missing
	badMethod    code = "method_not_allowed" //
	tooLarge     code = "too_large"          // the body, for the sidecar or for the broker
	slow         code = "slow"               // a slow body held memory that others needed
	misdirected  code = "misdirected"        // the Host header names another server
	nacked       code = "nacked"             // a queue rejected it, others may have it
	blocked      code = "blocked"            // the broker's alarm
	busy         code = "busy"               // too much at once
	disconnected code = "disconnected"       // no connection to the broker
	stopping     code = "stopping"           // the sidecar is shutting down
	unknown      code = "unknown"            // sent, and not confirmed: it may have been published
	internal     code = "internal"           // a bug
)

// outcomes are the results of a message that was read. The first one is that of an item without a result, so that only
// a confirm makes it a 204.
var outcomes = []struct {
	status int
	code   code
}{
	{http.StatusGatewayTimeout, unknown},
	{http.StatusNoContent, published},
	{http.StatusBadRequest, invalid},
	{http.StatusForbidden, forbidden},
	{http.StatusNotFound, unroutable},
	{http.StatusRequestEntityTooLarge, tooLarge},
	{http.StatusRequestTimeout, slow},
	{http.StatusServiceUnavailable, nacked},
	{http.StatusServiceUnavailable, blocked},
	{http.StatusServiceUnavailable, busy},
	{http.StatusServiceUnavailable, disconnected},
	{http.StatusServiceUnavailable, stopping},
}

// indexOf returns the index of a code in outcomes. Any other code is unknown: it must not pass for a refusal.
func indexOf(c code) uint8 {
	for i, o := range outcomes {
		if o.code == c {
			return uint8(i) // #nosec G115 -- there are a dozen
		}
	}
	return 0
}

// failure is the reason why a message was not published, or not to all of its queues.
type failure struct {
	code   code
	status int
	detail string
	ends   bool // the batch: the items behind cannot be read
}

// fail returns a failure with a code of outcomes.
func fail(c code, format string, args ...any) *failure {
	return &failure{code: c, status: outcomes[indexOf(c)].status, detail: fmt.Sprintf(format, args...)}
}

func bad(format string, args ...any) *failure { return fail(invalid, format, args...) }

// ending returns f as the end of a batch.
func ending(f *failure) *failure {
	f.ends = true
	return f
}

var (
	errBusy     = fail(busy, "Too many messages at once. Nothing was sent.")
	errStopping = fail(stopping, "The sidecar is shutting down. Nothing was sent.")
)

// failures are the failures of the errors of package broker; the first one that matches counts. %s in a detail stands
// for the text of the error.
var failures = []struct {
	cause  error
	code   code
	detail string
}{
	{broker.ErrUnknown, unknown, // first: its cause may be one of the others
		"The message was sent and the broker has not answered: it may have been published. Send it again with the same " +
			"Idempotency-Key, by which its consumers recognise a copy. (%s)"},
	{broker.ErrNoRequester, unroutable, "No client consumes replies at this address: the requester has gone, or the " +
		"address is not one of this broker. Nothing was sent. (%s)"},
	{broker.ErrUnroutable, unroutable, "The message reached no queue and was not kept: %s"},
	{broker.ErrTooLarge, invalid, "Routing key, properties and headers together do not fit a frame of the broker: %s"},
	{broker.ErrInvalid, invalid, "AMQP cannot carry this message: %s"},
	{broker.ErrNacked, nacked, "At least one queue rejected the message and may be full; other queues of the exchange " +
		"may have it. Send it again with the same Idempotency-Key, by which consumers recognise a copy. (%s)"},
	{broker.ErrRefused, nacked, "The broker did not accept the message: %s"},
	{broker.ErrBlocked, blocked, "The broker has a resource alarm and accepts no messages. Nothing was sent."},
	{broker.ErrBusy, busy, "There was no room on the connection in time. Nothing was sent."},
	{broker.ErrDisconnected, disconnected, "The broker is not connected. Nothing was sent."},
}

// failureOf returns the failure of an error of package broker. After an unknown error the message may have been sent.
func failureOf(err error) *failure {
	refused, isRefused := errors.AsType[*broker.RefusedError](err)
	reason := httpguard.Sentence(err)
	switch {
	case errors.Is(err, broker.ErrUnknown), !isRefused:
	case refused.Code == amqp.PreconditionFailed && strings.Contains(refused.Text, "size"):
		return fail(tooLarge, "The broker does not accept a body of this size: %s", reason)
	case refused.Code == amqp.AccessRefused:
		return fail(forbidden, "The broker does not allow the sidecar to publish this: %s", reason)
	}
	for _, f := range failures {
		if errors.Is(err, f.cause) {
			return fail(f.code, "%s", strings.Replace(f.detail, "%s", reason, 1))
		}
	}
	return fail(unknown, "The message may have been published. (%s)", reason)
}
