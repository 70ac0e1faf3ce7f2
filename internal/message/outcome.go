package message

import "time"

// Failure says why there is no usable answer. The zero value means the app answered with Outcome.Status.
type Failure uint8

// The ways an attempt can end without a usable answer.
const (
	FailureNone        Failure = iota
	FailureRefused             // no byte of the request was sent: connection refused, no such host or socket, dial timeout
	FailureTimeout             // the attempt's time ran out after the connection stood
	FailureReset               // the connection broke after bytes were sent
	FailureMalformed           // what came back is not an HTTP answer, or its header block is too large
	FailureTooLarge            // the message body is over the limit; nothing was sent
	FailureInterrupted         // the sidecar's own stop cut the attempt short
	FailureCrash               // the sidecar ended or failed while it had the message: nobody saw what the app did
)

// String returns the closed-set name of f, used in metric labels and logs; "" for FailureNone.
func (f Failure) String() string {
	switch f {
	case FailureNone:
		return ""
	case FailureRefused:
		return "refused"
	case FailureTimeout:
		return "timeout"
	case FailureReset:
		return "reset"
	case FailureMalformed:
		return "malformed"
	case FailureTooLarge:
		return "too_large"
	case FailureInterrupted:
		return "interrupted"
	case FailureCrash:
		return "crash"
	}
	return "unknown"
}

// Disposition is what the app asked for in its Amqp-Disposition response header, or in its body in the words of another
// contract.
type Disposition uint8

// The dispositions an app may ask for; DispositionNone lets the status decide.
const (
	DispositionNone Disposition = iota
	DispositionAck
	DispositionRetry
	DispositionRequeue
	DispositionPark
	DispositionDiscard
)

// Problem is the part of an RFC 9457 answer that is kept for parking. Each field is cut to 1024 bytes by the dispatch.
type Problem struct {
	Type, Title, Detail string
}

// Outcome is what one attempt showed: facts only. A refused connection is a fact too, not an error of the sidecar.
type Outcome struct {
	Status      int           // the answer's status as received, 0 to 999; 0 together with a Failure
	Failure     Failure       // FailureNone when Status is meaningful
	Err         error         // the cause behind a Failure, for x-final-error and the log; never holds a secret
	RetryAfter  time.Duration // from Retry-After, already capped; negative when absent or not understood
	Disposition Disposition
	Unknown     bool   // the app asked in a word outside the set, or in a body too large to be read
	Detail      string // Amqp-Reason, at most 256 bytes of valid UTF-8 without control characters, or what the body asked for
	Problem     *Problem
	Truncated   int           // headers of the message that did not fit the request's budget
	Elapsed     time.Duration // of the attempt
	At          time.Time     // when the attempt ended
}

// OK reports whether the app took the message by its status.
func (o *Outcome) OK() bool { return o.Failure == FailureNone && o.Status >= 200 && o.Status <= 299 }
