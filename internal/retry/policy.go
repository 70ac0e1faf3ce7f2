// Package retry judges: given a message and the outcome of an attempt, Decide returns the verdict. It is pure: it has
// no clock and no network, and does not depend on how a topology carries a verdict out.
package retry

import (
	"slices"
	"time"

	"sidecar/internal/message"
)

// MinRequeueDelay is the shortest local delay before a requeue. A requeued message returns to the head of its queue:
// without a minimum a 425 becomes a hot loop through broker and app.
const MinRequeueDelay = 250 * time.Millisecond

// PanicHold delays the requeue of a message that made the sidecar panic, so that it does not loop.
const PanicHold = 5 * time.Second

// Policy holds the rules of judgement. The retry limit travels with the message, because it belongs to the topology.
type Policy struct {
	ParkOn []int // statuses that park at once

	// CountRefused makes a connection that could not be opened a counted attempt. Otherwise such a message is given
	// back unharmed: an app that is down says nothing about the message.
	CountRefused bool
	AckUnrouted  bool // ack a message that no route matches; otherwise it is parked

	// RequeueMin and RequeueMax bound the random local delay before a requeue.
	RequeueMin, RequeueMax time.Duration

	PanicHold time.Duration // delay before requeueing a message that made the sidecar panic
}

// Decide judges the outcome o of one attempt on m. Order matters: what the sidecar itself caused comes first, then
// what the app asked for in so many words, then the status.
func (p Policy) Decide(m *message.Message, o message.Outcome) message.Verdict {
	v := p.judge(&o)
	v.Cause = o
	// A requeue is not a retry: it ends where the retries are used up, and never where there are none.
	ends := v.Action == message.Retry || v.Action == message.Requeue && m.MaxRetries > 0
	if m.LastAttempt() && o.Failure != message.FailurePanic && ends {
		v.Action, v.Reason, v.Delay, v.Jitter = message.Park, message.ReasonMaxRetries, 0, 0
	}
	if o.RetryAfter > 0 && (o.Status == 429 || o.Status == 503) {
		switch v.Action {
		case message.Retry:
			v.Delay = o.RetryAfter
		case message.Park: // nothing is left to wait, but the app still asked to be left alone
			v.Pause = o.RetryAfter
		}
	}
	return v
}

// byFailure are the verdicts on attempts without a usable answer; any other failure is malformed.
var byFailure = map[message.Failure]message.Verdict{
	message.FailureInterrupted:  {Action: message.Release, Reason: message.ReasonShutdown},
	message.FailureUndispatched: {Action: message.Release, Reason: message.ReasonUndispatched},
	message.FailureForeign:      {Action: message.Ack, Reason: message.ReasonForeignRetry},
	message.FailurePanic:        {Action: message.Requeue, Reason: message.ReasonPanic},
	message.FailureNoRoute:      {Action: message.Park, Reason: message.ReasonNoRoute},
	message.FailureReplaced:     {Action: message.Ack, Reason: message.ReasonReplaced},
	message.FailureDeferred:     {Action: message.Release, Reason: message.ReasonDeferred},
	message.FailureTooLarge:     {Action: message.Park, Reason: message.ReasonTooLarge},
	message.FailureRefused:      {Action: message.Retry, Reason: message.ReasonRefused},
	message.FailureTimeout:      {Action: message.Retry, Reason: message.ReasonTimeout},
	message.FailureReset:        {Action: message.Retry, Reason: message.ReasonReset},
}

func (p Policy) judge(o *message.Outcome) message.Verdict {
	if o.Failure == message.FailureNone {
		return p.answer(o)
	}
	v, known := byFailure[o.Failure]
	switch {
	case !known:
		return message.Verdict{Action: message.Retry, Reason: message.ReasonMalformed}
	case o.Failure == message.FailureRefused && !p.CountRefused:
		return message.Verdict{Action: message.Release, Reason: message.ReasonAppDown}
	case o.Failure == message.FailureNoRoute && p.AckUnrouted:
		v.Action = message.Ack
	case o.Failure == message.FailurePanic:
		v.Delay = p.PanicHold
	}
	return v
}

// answer judges what the app answered.
func (p Policy) answer(o *message.Outcome) message.Verdict {
	var v message.Verdict
	switch {
	case o.Disposition != message.DispositionNone:
		v.Action, v.Reason = o.Disposition.Action(), message.ReasonDisposition
	case o.OK():
		v.Action, v.Reason = message.Ack, message.ReasonSuccess
	case slices.Contains(p.ParkOn, o.Status):
		v.Action, v.Reason = message.Park, message.ReasonParkStatus
	case o.Status == 425:
		v.Action, v.Reason = message.Requeue, message.ReasonTooEarly
	default:
		v.Action, v.Reason = message.Retry, statusReason(o.Status)
	}
	switch {
	case v.Action != message.Requeue:
	case o.RetryAfter >= 0:
		v.Delay = max(o.RetryAfter, MinRequeueDelay)
	default:
		v.Delay = max(p.RequeueMin, MinRequeueDelay)
		v.Jitter = max(p.RequeueMax-v.Delay, 0)
	}
	return v
}

func statusReason(status int) message.Reason {
	switch {
	case status == 409:
		return message.ReasonConflict
	case status == 429:
		return message.ReasonRateLimited
	case status < 200 || status > 599:
		return message.ReasonInvalidStatus
	case status >= 500:
		return message.ReasonServerError
	case status >= 400:
		return message.ReasonClientError
	}
	return message.ReasonRedirect
}
