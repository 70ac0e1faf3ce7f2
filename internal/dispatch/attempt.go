package dispatch

import (
	"context"
	"net"
	"sync"
	"time"

	"sidecar/internal/budget"
	"sidecar/internal/message"
)

// attempt is one POST and the memory it takes: the request's bytes and the answer's. It is lent from a pool rather than
// owned by a connection, so that idle connections hold none and an app that closes after every answer costs none.
type attempt struct {
	target   *Target
	ctx      context.Context
	body     []byte
	deadline time.Time
	out      message.Outcome

	request request
	answer  answer
	parts   [2][]byte
	vector  net.Buffers
}

// keptBuffer is the size up to which a request's grown buffer is kept for the next attempt.
const keptBuffer = 32 << 10

var attempts = sync.Pool{New: func() any {
	x := &attempt{}
	x.request.out = make([]byte, 0, 2<<10)
	x.answer.in.buf = make([]byte, smallAnswer)
	return x
}}

// newAttempt returns an attempt whose answer takes more than smallAnswer bytes from memory.
func newAttempt(memory *budget.Account) *attempt {
	x := attempts.Get().(*attempt)
	x.answer.in.memory, x.answer.in.deadline = memory, time.Time{}
	return x
}

// release gives x back without any reference to the message it served.
func (x *attempt) release() {
	if x.answer.in.large {
		x.answer.in.memory.Give(largeAnswer)
		return // the buffers are large: they are the garbage collector's
	}
	x.target, x.ctx, x.body, x.out = nil, nil, nil, message.Outcome{}
	x.parts, x.vector = [2][]byte{}, nil
	x.request.forget()
	x.answer.forget()
	if cap(x.request.out) <= keptBuffer {
		attempts.Put(x)
	}
}

// run posts m and leaves what happened in out.
func (x *attempt) run(m *message.Message, start time.Time) {
	t := x.target
	x.out.Truncated = x.request.encode(t.encoding, m)
	x.body, x.deadline = m.Body, start.Add(t.timeout)
	x.answer.in.deadline = x.deadline
	if c := t.pool.take(x.ctx, start); c != nil && x.over(c) {
		return
	}
	// Either there was no idle connection, or the one taken died before it accepted a single byte: only then may the
	// request go out on another.
	c, err := t.dialer.dial(x.ctx, x.deadline)
	if err != nil {
		undialled(x.ctx, err, &x.out)
		return
	}
	c.bind(x.ctx)
	if !x.over(c) {
		x.out.Failure, x.out.Err = message.FailureRefused, errRefusedByReset
	}
}
