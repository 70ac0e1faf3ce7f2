package dispatch

import (
	"context"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/budget"
	"sidecar/internal/http1"
	"sidecar/internal/message"
)

// format writes messages as the body of one request:
//
//   - jsonl: a line for each message, the object that /publish:batch takes with the exchange's name, and behind it
//     "delivery":{"attempt":1,"retry_count":0,"last_attempt":false,"redelivered":false,"queue":"…"}. Headers have their
//     own names and types; those are there that a request may have, but for reserved ones. A trace context is that of
//     the message's span.
//   - cloudevents: an array of events in JSON. Attributes are those of binary mode, as strings; names of other
//     characters than a-z and 0-9 are left out. There are deliveryattempt, a number, contentencoding, if the message
//     has one (amqpcontentencoding if HTTP does not have it), and the trace context of its span as traceparent and
//     tracestate. data is JSON if the content type and the body are, or text of a text/* type; data_base64 is anything
//     else. Other headers and properties have no place here. The body of a structured event, a JSON object, is an
//     element as it is.
//
// The request itself has the trace context of the POST.
type format struct {
	contentType string
	item        func(b *batch, t *Target, m *message.Message) // appends a message
	end         func(b *batch)                                // appends what follows the last one; may be nil
}

var formats = map[string]format{
	"jsonl":       {contentType: "application/jsonl", item: (*batch).line},
	"cloudevents": {contentType: "application/cloudevents-batch+json", item: (*batch).event, end: (*batch).endEvents},
}

// DispatchBatch POSTs ms, which have one URL, in one request. each has the outcome of every message if the app answered
// 2xx and what it said could be read; otherwise it is nil, and whole is the outcome of all of them. See Dispatch for
// ctx.
func (t *Target) DispatchBatch(ctx context.Context, ms []*message.Message, trace message.TraceContext) (
	whole message.Outcome, each []message.Outcome) {
	start := time.Now()
	whole, each = t.postBatch(ctx, ms, &trace)
	whole.At = time.Now()
	whole.Elapsed = whole.At.Sub(start)
	for i := range each {
		each[i].At, each[i].Elapsed = whole.At, whole.Elapsed
	}
	t.metrics.count(&whole)
	return whole, each
}

func (t *Target) postBatch(ctx context.Context, ms []*message.Message, trace *message.TraceContext) (
	message.Outcome, []message.Outcome) {
	for _, m := range ms {
		if n := int64(len(m.Body)); n > t.o.MaxBody {
			return tooLarge("body too large: %d bytes, limit %d", n, t.o.MaxBody), nil
		}
	}
	x := newAttempt(t, time.Time{})
	defer x.release()
	if !x.begin(ctx, t, ms[0]) {
		return x.out, nil
	}
	b := batches.Get().(*batch)
	defer b.release(t.o.Memory)
	if !b.encode(ctx, t, ms) {
		b.noMemory(ctx, t, ms, &x.out)
		return x.out, nil
	}
	for _, n := range b.leftOut {
		x.out.Truncated += n
	}
	// The memory of the answer is taken already, see encode. The app has its whole time, also after a wait for memory.
	x.exchange.Begin(nil, time.Now().Add(t.o.Timeout))
	x.exchange.Answer.Limit = answerLimit(len(ms))
	x.answer.batch = true
	x.request.batch(t, x.out.URL, t.format.contentType, len(b.out), trace)
	x.send(ctx, t, b.out)
	return x.out, x.verdicts(t, ms, b.leftOut)
}

// batch writes the head of a request with several messages.
func (r *request) batch(t *Target, url, contentType string, size int, trace *message.TraceContext) {
	r.start(t, url)
	r.out = append(append(append(r.out, "Content-Type: "...), contentType...), '\r', '\n')
	r.number("Content-Length: ", int64(size))
	r.traces(trace)
	r.out = append(r.out, '\r', '\n')
}

// batch is the body of a request while it is written.
type batch struct {
	out     []byte
	leftOut []int // headers that are not in out, of each message
	part    request
	form    amqp.Publishing
	table   amqp.Table

	bodies, need, taken int64 // bytes of memory: what the messages have, and what the request and its answer need and have
}

var batches = sync.Pool{New: func() any { return &batch{table: amqp.Table{}} }}

// keptBody is the size up to which a body's buffer is kept for the next batch.
const keptBody = 512 << 10

// answerLimit bounds the body of the answer to n messages. A verdict on each fits into it.
func answerLimit(n int) int64 { return http1.MaxBody + int64(n)<<10 }

// encode writes ms into b.out, for which it takes memory, and at the same time for the answer: POSTs that had one and
// waited for the other would block each other. It returns false if there never is enough memory, if there is none
// before the time of an attempt is over, or when ctx ends.
func (b *batch) encode(ctx context.Context, t *Target, ms []*message.Message) bool {
	size, most, slack := 0, 0, 0
	for _, m := range ms {
		usual, atMost := room(m)
		size, most, slack = size+usual, most+atMost, max(slack, atMost-usual)
		b.bodies += int64(len(m.Body))
	}
	for size = min(size+slack, most); b.take(ctx, t, size, 4*answerLimit(len(ms))); size = most {
		if b.write(t, ms, size < most) {
			return true
		}
	}
	return false
}

// write writes the messages, or returns false if checked and b.out may be too small.
func (b *batch) write(t *Target, ms []*message.Message, checked bool) bool {
	b.out, b.leftOut = b.out[:0], b.leftOut[:0]
	for _, m := range ms {
		if checked {
			if _, most := room(m); most > cap(b.out)-len(b.out) {
				return false
			}
		}
		b.part.leftOut = 0
		t.format.item(b, t, asSent(m))
		b.leftOut = append(b.leftOut, b.part.leftOut)
	}
	if t.format.end != nil {
		t.format.end(b)
	}
	return true
}

// take makes room for size bytes in b.out, with memory for it and for an answer.
func (b *batch) take(ctx context.Context, t *Target, size int, answer int64) bool {
	t.o.Memory.Give(b.taken)
	b.taken = 0
	isNew := cap(b.out) < size
	b.need = int64(max(size, cap(b.out))) + answer
	switch memory := t.o.Memory; {
	case !b.possible(memory):
		return false
	case memory.Take(b.need):
	default:
		ctx, cancel := context.WithTimeout(ctx, t.o.Timeout)
		defer cancel()
		if !memory.Wait(b.need, ctx.Done()) {
			return false
		}
	}
	b.taken = b.need
	if isNew {
		b.out = make([]byte, 0, size)
	}
	return true
}

// possible reports whether there can be memory at all: the messages have some of it until they are settled.
func (b *batch) possible(memory *budget.Account) bool { return b.bodies+b.need <= memory.Limit() }

// room returns what m usually takes in any format, and what it takes at most: a byte of a text takes six bytes at most
// in JSON. Only headers that are decimals of hundreds of digits take more than 16 times what they do in a frame.
func room(m *message.Message) (usual, most int) {
	text := len(m.MessageID) + len(m.CorrelationID) + len(m.ReplyTo) + len(m.Type) + len(m.AppID) + len(m.UserID) +
		len(m.ContentType) + len(m.ContentEncoding) + len(m.Expiration) + len(m.Queue) + len(m.Exchange) +
		len(m.RoutingKey) + len(m.Trace.Traceparent) + len(m.Trace.Tracestate) + len(m.Trace.Baggage)
	headers, _ := amqpvalue.TableSize(m.Headers)
	least := 1<<10 + 2*len(m.Body) // as text: base64 takes less
	return least + 2*text + 4*headers, least + 6*text + 16*headers
}

// noMemory makes o the outcome of a batch that could not be written. A message alone is released, unless there will
// never be memory for it.
func (b *batch) noMemory(ctx context.Context, t *Target, ms []*message.Message, o *message.Outcome) {
	switch {
	case ctx.Err() != nil:
		o.Failure, o.Err = http1.Interrupted(ctx)
	case len(ms) == 1 && b.possible(t.o.Memory):
		o.Failure = message.FailureUndispatched
		t.o.Logger.Warn("no memory for a request", "message_id", ms[0].MessageID, "size", b.need)
	default:
		*o = tooLarge("no memory for a request and its answer: with the messages (%d) %d bytes, and SIDECAR_MEMORY is %d",
			len(ms), b.bodies+b.need, t.o.Memory.Limit())
	}
}

// release gives the memory back, and b without any reference to the messages.
func (b *batch) release(memory *budget.Account) {
	if cap(b.out) > keptBody {
		memory.Give(b.taken)
	} else {
		memory.Keep(b.taken)
	}
	b.part.forget()
	clear(b.table)
	*b = batch{out: b.out[:0], leftOut: b.leftOut, part: b.part, table: b.table}
	if b.part.out = nil; cap(b.out) > keptBody {
		b.out = nil
	}
	batches.Put(b)
}
