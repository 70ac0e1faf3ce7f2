// Package retry judges: given a message and the outcome of an attempt, Decide returns the verdict. It is pure: it has
// no clock and no network, and does not know how a topology carries a verdict out.
package retry

import (
	"time"

	"sidecar/internal/message"
)

// MinRequeueDelay is the shortest local delay before a requeue. A requeued message returns to the head of its queue:
// without a minimum a 425 becomes a hot loop through broker and app.
const MinRequeueDelay = 250 * time.Millisecond

// CrashHold delays the requeue of a message that made the sidecar panic, so that it does not loop.
const CrashHold = 5 * time.Second

// Policy holds the rules of judgement. It is a comparable value; the retry limit travels with the message, because
// it belongs to the topology.
type Policy struct {
	ParkOn StatusSet // statuses that park at once

	// CountRefused makes a connection that could not be opened a counted attempt. Otherwise such a message is given
	// back unharmed: an app that is down says nothing about the message.
	CountRefused bool

	// RequeueMin and RequeueMax bound the random local delay before a requeue.
	RequeueMin, RequeueMax time.Duration

	CrashLimit int           // crashes after which a message that caused the last one alone is parked; 0: never
	CrashHold  time.Duration // delay before requeueing a message that made the sidecar panic
}

// Decide judges the outcome o of one attempt on m. Order matters: what the sidecar itself caused comes first, then
// what the app asked for in so many words, then the status.
func (p Policy) Decide(m *message.Message, o message.Outcome) message.Verdict {
	v := p.judge(&o)
	v.Cause = o
	crash := o.Failure == message.FailureCrash || o.Failure == message.FailurePanic
	switch {
	// A requeue is not a retry: it ends where the retries are used up, and never where there are none.
	case m.LastAttempt() && !crash && (v.Action == message.Retry || v.Action == message.Requeue && m.MaxRetries > 0):
		v.Action, v.Reason, v.Delay, v.Jitter = message.Park, message.ReasonMaxRetries, 0, 0
	case o.CrashProven && p.CrashLimit > 0 && m.Crashes >= p.CrashLimit && (crash || v.Action == message.Retry):
		v.Action, v.Reason, v.Delay = message.Park, message.ReasonCrash, 0
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

func (p Policy) judge(o *message.Outcome) message.Verdict {
	switch o.Failure {
	case message.FailureNone:
		if v, asked := p.disposition(o); asked {
			return v
		}
		return p.status(o)
	case message.FailureInterrupted:
		return message.Verdict{Action: message.Release, Reason: message.ReasonShutdown}
	case message.FailureUndispatched:
		return message.Verdict{Action: message.Release, Reason: message.ReasonUndispatched}
	case message.FailureForeign:
		return message.Verdict{Action: message.Ack, Reason: message.ReasonForeignRetry}
	case message.FailureCrash:
		return message.Verdict{Action: message.Requeue, Reason: message.ReasonCrash}
	case message.FailurePanic:
		return message.Verdict{Action: message.Requeue, Reason: message.ReasonPanic, Delay: p.CrashHold}
	case message.FailureTooLarge:
		return message.Verdict{Action: message.Park, Reason: message.ReasonTooLarge}
	case message.FailureRefused:
		if !p.CountRefused {
			return message.Verdict{Action: message.Release, Reason: message.ReasonAppDown}
		}
		return message.Verdict{Action: message.Retry, Reason: message.ReasonRefused}
	case message.FailureTimeout:
		return message.Verdict{Action: message.Retry, Reason: message.ReasonTimeout}
	case message.FailureReset:
		return message.Verdict{Action: message.Retry, Reason: message.ReasonReset}
	default:
		return message.Verdict{Action: message.Retry, Reason: message.ReasonMalformed}
	}
}

func (p Policy) disposition(o *message.Outcome) (message.Verdict, bool) {
	const r = message.ReasonDisposition
	switch o.Disposition {
	case message.DispositionAck:
		return message.Verdict{Action: message.Ack, Reason: r}, true
	case message.DispositionRetry:
		return message.Verdict{Action: message.Retry, Reason: r}, true
	case message.DispositionRequeue:
		return p.requeue(o, r), true
	case message.DispositionPark:
		return message.Verdict{Action: message.Park, Reason: r}, true
	case message.DispositionDiscard:
		return message.Verdict{Action: message.Discard, Reason: r}, true
	}
	return message.Verdict{}, false
}

func (p Policy) status(o *message.Outcome) message.Verdict {
	if o.OK() {
		return message.Verdict{Action: message.Ack, Reason: message.ReasonSuccess}
	}
	if p.ParkOn.Has(o.Status) {
		return message.Verdict{Action: message.Park, Reason: message.ReasonParkStatus}
	}
	if o.Status == 425 {
		return p.requeue(o, message.ReasonTooEarly)
	}
	return message.Verdict{Action: message.Retry, Reason: statusReason(o.Status)}
}

func (p Policy) requeue(o *message.Outcome, r message.Reason) message.Verdict {
	v := message.Verdict{Action: message.Requeue, Reason: r}
	if o.RetryAfter >= 0 {
		v.Delay = max(o.RetryAfter, MinRequeueDelay)
		return v
	}
	v.Delay = max(p.RequeueMin, MinRequeueDelay)
	v.Jitter = max(p.RequeueMax-v.Delay, 0)
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
