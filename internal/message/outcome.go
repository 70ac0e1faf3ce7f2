package message

import (
	"fmt"
	"time"
)

// Failure is the reason why there is no usable answer. The zero value means the app answered with Outcome.Status.
type Failure uint8

// The ways an attempt can end without a usable answer.
const (
	FailureNone Failure = iota
	// no byte of the request was sent: connection refused, no such host or socket, dial timeout
	FailureRefused
	FailureTimeout // the attempt's time ran out after the connection was open
	FailureReset   // the connection broke after bytes were sent
	// The answer is not HTTP, its header block is too large, or it does not say what to do: it has two dispositions, or
	// verdicts or a status of Dapr that cannot be read.
	FailureMalformed
	FailureTooLarge     // the message body is over the limit; nothing was sent
	FailureInterrupted  // the sidecar's own shutdown ended the attempt
	FailurePanic        // the sidecar panicked during the attempt
	FailureUndispatched // not POSTed: the delivery's session has ended, and the broker delivers the message again
	FailureForeign      // not POSTed: a retry of another service, see topology.Plan.Foreign
	FailureNoRoute      // not POSTed: no route matches it
	FailureReplaced     // not POSTed: its replacement was published before, but the ack did not arrive
	FailureDeferred     // not POSTed: it failed before, and others have to show whether the app is well again
)

var failureNames = [...]string{
	"", "refused", "timeout", "reset", "malformed", "too_large", "interrupted", "panic", "undispatched", "foreign",
	"no_route", "replaced", "deferred",
}

// String returns the name of f in metric labels and logs; "" for FailureNone.
func (f Failure) String() string { return failureNames[f] }

// Disposition is the app's request in its Amqp-Disposition response header, or in its body by another contract.
type Disposition uint8

// The dispositions an app may ask for, in the order of their actions; DispositionNone lets the status decide.
const (
	DispositionNone Disposition = iota
	DispositionAck
	DispositionRetry
	DispositionRequeue
	DispositionPark
	DispositionDiscard
)

// Dispositions are the words of the dispositions from DispositionAck on.
var Dispositions = actionNames[:Release]

// Action returns the action of a disposition that is not DispositionNone.
func (d Disposition) Action() Action { return Action(d - DispositionAck) }

// Problem is the part of an RFC 9457 answer that is kept for parking. Each field is cut to 1024 bytes by the dispatch.
type Problem struct {
	Type, Title, Detail string
}

// Outcome is the result of one attempt: facts only. A refused connection is a fact too, not an error of the sidecar.
type Outcome struct {
	Status      int           // the answer's status as received, 0 to 999; 0 together with a Failure
	Failure     Failure       // FailureNone when Status is meaningful
	Err         error         // the cause behind a Failure, for x-final-error and the log; never holds a secret
	RetryAfter  time.Duration // from Retry-After, already capped; negative when absent or not understood
	Disposition Disposition
	Unknown     bool   // the app's disposition is not a known word, or in a body too large to be read
	Detail      string // Amqp-Reason or the body's word: at most 256 bytes of valid UTF-8 without control characters
	Problem     *Problem
	Location    string        // of a 3xx: scheme, host and path in ASCII, at most 256 bytes; "" if there is none to show
	Answer      string        // the beginning of a failing answer as text, see SIDECAR_PARK_ANSWER; never logged
	Truncated   int           // headers of the message that did not fit the request's budget
	Route       int           // that decided about the path, from 1 on; 0: the path is that of SIDECAR_APP_URL
	URL         string        // of the POST, if a route decided about it
	Elapsed     time.Duration // of the attempt
	At          time.Time     // when the attempt ended
	Remembered  bool          // of an attempt on an earlier delivery whose settlement was lost: not POSTed now
}

// Posted reports whether the app was asked.
func (o *Outcome) Posted() bool {
	switch o.Failure {
	case FailureUndispatched, FailureForeign, FailureNoRoute, FailureReplaced, FailureDeferred:
		return false
	}
	return !o.Remembered
}

// OK reports whether the app accepted the message: its status is 2xx.
func (o *Outcome) OK() bool { return o.Failure == FailureNone && o.Status >= 200 && o.Status <= 299 }

// UnwellError is why a health check failed that the app answered.
type UnwellError struct {
	Status   int
	Location string // of a redirect, as in Outcome; "" without one
}

// Error returns a text that begins with "the app answered". By this beginning the console distinguishes an app that is
// not well from an app that does not answer.
func (e *UnwellError) Error() string {
	text := fmt.Sprintf("the app answered %d", e.Status)
	if e.Location != "" {
		text += " and Location " + e.Location
	}
	return text
}
