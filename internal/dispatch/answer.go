package dispatch

import (
	"time"

	"sidecar/internal/http1"
	"sidecar/internal/message"
)

const errDispositions = http1.MalformedError("two different Amqp-Disposition headers")

// answer is what the header fields of an answer say about the message. It implements http1.Header.
type answer struct {
	dapr bool // the body of a 2xx may contain a Dapr status

	isProblem   bool
	retryAfter  retryAfter
	disposition disposition
	reason      string
	speaks      bool // the body is read for a Dapr status
}

// Reset clears the fields of an interim answer.
func (a *answer) Reset() { *a = answer{dapr: a.dapr} }

// Field reads one header field.
func (a *answer) Field(name, value []byte) {
	switch len(name) {
	case 11:
		switch {
		case http1.FoldEqual(name, "retry-after"):
			a.retryAfter.set(value)
		case http1.FoldEqual(name, "amqp-reason") && a.reason == "":
			a.reason = clean(value, maxReason)
		}
	case 12:
		if http1.FoldEqual(name, "content-type") {
			a.isProblem = isProblem(value)
		}
	case 16:
		if http1.FoldEqual(name, "amqp-disposition") {
			a.disposition.set(value)
		}
	}
}

// Body says whether the body has something to say. Where two headers ask for different things the answer is malformed:
// the status must not decide, for it may be a 2xx.
func (a *answer) Body(status int) (http1.Use, error) {
	a.speaks = a.dapr && status/100 == 2
	switch {
	case a.disposition.conflicting:
		return http1.Skip, errDispositions
	case a.speaks:
		return http1.Need, nil
	case a.isProblem:
		return http1.Keep, nil
	}
	return http1.Skip, nil
}

// report copies the result into o.
func (a *answer) report(in *http1.Answer, o *message.Outcome, retryAfterMax time.Duration) {
	o.Status = in.Status
	if a.retryAfter.present {
		o.RetryAfter = a.retryAfter.wait(time.Now(), retryAfterMax)
	}
	o.Disposition, o.Unknown = a.disposition.result()
	o.Detail = a.reason
	if a.isProblem {
		o.Problem = parseProblem(in.Body)
	}
	if a.speaks {
		daprAnswer(in.Body, !in.Whole, o)
	}
}
