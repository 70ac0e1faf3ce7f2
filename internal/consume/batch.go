package consume

import (
	"context"
	"time"

	"sidecar/internal/message"
)

// Batch is how messages are gathered for one POST.
type Batch struct {
	Size       int           // messages of one POST at most; below 2 each message is POSTed by Options.Dispatcher
	Wait       time.Duration // for more, from the first message on
	Bytes      int64         // of the bodies of one POST; a larger message is POSTed alone
	Dispatcher BatchDispatcher
}

// BatchDispatcher POSTs messages of one URL in one request. Cancelling ctx interrupts the attempt.
type BatchDispatcher interface {
	// Route returns the URL of m's POST, "" for that of the app.
	Route(m *message.Message) (route int, url string)

	// DispatchBatch POSTs at least one message. each has the outcome of every message, in their order, if the app
	// answered 2xx and what it said could be read. Otherwise it is nil, and whole is the outcome of all of them.
	// trace is the trace context of the request; each message has one of its own.
	DispatchBatch(ctx context.Context, ms []*message.Message, trace message.TraceContext) (
		whole message.Outcome, each []message.Outcome)
}
