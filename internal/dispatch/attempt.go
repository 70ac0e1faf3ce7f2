package dispatch

import (
	"context"
	"sync"
	"time"

	"sidecar/internal/http1"
	"sidecar/internal/message"
)

// attempt is one POST: the request and its answer. Attempts are kept in a pool, see http1.Exchange.
type attempt struct {
	exchange *http1.Exchange
	request  request
	answer   answer
	out      message.Outcome
}

var attempts = sync.Pool{New: func() any {
	x := &attempt{}
	x.exchange = http1.NewExchange(&x.answer)
	return x
}}

// newAttempt returns an attempt on t that must end at deadline.
func newAttempt(t *Target, deadline time.Time) *attempt {
	x := attempts.Get().(*attempt)
	x.exchange.Begin(t.memory, deadline)
	x.request.out, x.answer.dapr = x.exchange.Head, t.dapr
	return x
}

// release gives x back without any reference to the message it served.
func (x *attempt) release() {
	x.out = message.Outcome{}
	x.request.forget()
	x.answer = answer{}
	if x.exchange.End() {
		attempts.Put(x)
	}
}

// post sends m and leaves what happened in out.
func (x *attempt) post(ctx context.Context, t *Target, m *message.Message) {
	x.out.RetryAfter = -1
	if ctx.Err() != nil {
		x.out.Failure, x.out.Err = http1.Interrupted(ctx)
		return
	}
	x.out.Truncated = x.request.encode(t.encoding, m)
	x.exchange.Head = x.request.out
	x.out.Failure, x.out.Err = t.client.Do(ctx, x.exchange, m.Body)
	if x.out.Failure == message.FailureNone {
		x.answer.report(&x.exchange.Answer, &x.out, t.retryAfterMax)
	}
}
