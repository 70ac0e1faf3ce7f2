package publish

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/broker"
	"sidecar/internal/terminal"
)

const (
	batchPath    = "/publish:batch"
	defaultAlias = "default"

	maxBatches = 8       // at once
	maxItems   = 1 << 20 // of one batch
	// maxDetails is how many failures of a batch have a detail; the others have only a code.
	maxDetails = 1000
	// batchWindow is how many messages of one batch are sent and not yet confirmed.
	batchWindow = 512

	// costOfBatch is the memory of a batch besides its messages, in bytes: two buffers and the details of failures.
	costOfBatch = batchBuffer + 16<<10 + maxDetails*400
	batchBuffer = 64 << 10
	gotID       = 1 << 7 // in codes: the message got its id here
	// resultStep is for how many results a batch takes memory at a time; costOfResult is that of one while the list grows.
	resultStep   = 16 << 10
	costOfResult = 3
)

// batch publishes messages in their order. It answers at the end: a client may not read before it has sent everything.
func (s *Server) batch(w http.ResponseWriter, r *http.Request) {
	room := room{server: s, w: w}
	defer room.free()
	in, f := s.admitBatch(r, &room)
	if f != nil {
		s.metrics.count("", f.code, 0)
		s.refuse(w, f)
		return
	}
	defer s.batches.Leave()
	room.wait = true
	b := &batch{
		server: s, w: w, r: r, rc: http.NewResponseController(w), room: &room,
		firstID: newFirstID(), details: map[int]string{}, sent: make(chan *item, batchWindow-1),
	}
	b.publish(in)
	b.answer()
}

// publish sends the messages, and returns when all have a result, also when it panics.
func (b *batch) publish(in *jsonLines) {
	var settled sync.WaitGroup
	settled.Go(b.settle)
	defer settled.Wait()
	defer close(b.sent)
	b.run(in)
}

// flushing is the body of a batch. What has been sent is written before a read, which may wait for the client.
type flushing struct {
	io.Reader

	publisher *broker.Publisher
}

func (f flushing) Read(p []byte) (int, error) {
	f.publisher.Flush()
	return f.Reader.Read(p)
}

// admitBatch admits a batch and takes its own memory.
func (s *Server) admitBatch(r *http.Request, room *room) (*jsonLines, *failure) {
	t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || !amqpvalue.IsJSONLines(t) {
		f := bad("A batch is application/jsonl, a line of JSON for each message; body_base64 takes bytes.")
		f.status = http.StatusUnsupportedMediaType
		return nil, f
	}
	if f := s.ready(); f != nil {
		return nil, f
	}
	if !s.batches.Enter() {
		return nil, fail(busy, "Too many batches at once. Nothing was sent.")
	}
	if f := room.reserve(costOfBatch + costOfHeaders(r.Header)); f != nil {
		s.batches.Leave()
		return nil, f
	}
	body := flushing{r.Body, s.o.Publisher}
	return &jsonLines{server: s, in: bufio.NewReaderSize(body, batchBuffer), trace: carrierOf(r.Header)}, nil
}

// batch is a batch that is being published.
type batch struct {
	server   *Server
	w        http.ResponseWriter
	r        *http.Request
	rc       *http.ResponseController
	room     *room      // memory besides that of the messages
	itemRoom room       // memory of the message that is being read
	sent     chan *item // in their order

	patient time.Time          // when the deadlines were moved
	ctx     context.Context    // of the messages that are sent now
	endCtx  context.CancelFunc // of ctx
	firstID firstID            // for messages without one

	mu      sync.Mutex
	codes   []uint8        // by item: an index into outcomes, and gotID; a large batch holds a byte for each
	details map[int]string // of failures
	ended   *failure       // why the items after the last one were not read; errEnd: there are none
}

func (b *batch) run(in *jsonLines) {
	s := b.server
	for index := 0; ; index++ {
		if index == s.maxItems {
			b.ended = fail(tooLarge, "A batch has at most %d messages.", index)
			return
		}
		if s.stopping.Load() {
			b.ended = errStopping
			return
		}
		if index%resultStep == 0 {
			if b.ended = b.room.reserve(resultStep * costOfResult); b.ended != nil {
				return
			}
		}
		start := time.Now()
		b.patience(start)
		r := &b.itemRoom
		*r = room{server: s, w: b.w, wait: true}
		m, f := in.next(r)
		if f != nil && f.ends {
			r.free()
			b.ended = f
			return
		}
		var code uint8 // of an unknown result
		if f == nil && m.msg.MessageId == "" {
			m.msg.MessageId, code = b.firstID.at(index), gotID
		}
		b.mu.Lock() // results of earlier items are recorded at the same time
		b.codes = append(b.codes, code)
		b.mu.Unlock()
		if f == nil {
			b.sendItem(index, &m, r.taken, start)
			continue
		}
		r.free()
		b.record(index, m.alias, f, start)
	}
}

// patience extends the deadlines: they are for an item, not for the batch. Setting them is a good part of the cost of a
// small item, so an item may have an eighth more than its time instead.
func (b *batch) patience(now time.Time) {
	more := b.server.o.Timeout / 8
	if now.Sub(b.patient) < more {
		return
	}
	b.patient = now
	_ = b.rc.SetReadDeadline(now.Add(b.server.o.Timeout + more))
	_ = b.rc.SetWriteDeadline(now.Add(2*b.server.o.Timeout + answerTimeout + more))
}

// item is a message of a batch that was sent.
type item struct {
	outgoing

	index int
	taken int64 // bytes of memory
	start time.Time
	wait  func() *failure

	endPrevious context.CancelFunc // cancels the context of earlier messages; nil if this message shares it
}

// sendItem sends one message when there is room for it.
func (b *batch) sendItem(index int, m *outgoing, taken int64, start time.Time) {
	i := &item{outgoing: *m, index: index, taken: taken, start: start}
	i.endPrevious = b.renew(time.Now()) // reading it may have taken long
	i.wait = b.server.begin(b.ctx, &i.outgoing)
	select {
	case b.sent <- i:
	default: // the window is full
		b.server.o.Publisher.Flush()
		b.sent <- i
	}
}

// renew begins another context when the current one is older than an eighth of the timeout: one for each message would
// cost as much as to send it. It returns the end of the one before.
func (b *batch) renew(now time.Time) (end context.CancelFunc) {
	timeout := b.server.o.Timeout
	if b.ctx != nil {
		if until, _ := b.ctx.Deadline(); until.Sub(now) >= timeout {
			return nil
		}
	}
	end = b.endCtx
	b.ctx, b.endCtx = context.WithTimeout(context.Background(), timeout+timeout/8)
	return end
}

// settle waits for the results of the messages, in their order.
func (b *batch) settle() {
	for i := range b.sent {
		f := i.wait()
		broker.Give(b.server.o.Memory, i.taken, i.err)
		b.record(i.index, i.alias, f, i.start)
		if i.endPrevious != nil {
			i.endPrevious()
		}
	}
	if b.endCtx != nil {
		b.endCtx()
	}
}

// record stores the result of an item.
func (b *batch) record(index int, alias string, f *failure, start time.Time) {
	c := published
	if f != nil {
		c = f.code
	}
	b.server.metrics.count(alias, c, time.Since(start))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.codes[index] = b.codes[index]&gotID | indexOf(c)
	if f != nil && len(b.details) < maxDetails {
		b.details[index] = f.detail
	}
}

// result is one line of the answer.
type result struct {
	Index     int    `json:"index"`
	Status    int    `json:"status"`
	MessageID string `json:"message_id,omitempty"` // when it was made here
	Code      code   `json:"code,omitempty"`
	Detail    string `json:"detail,omitempty"`
}

// answer writes a line for each item, and one more when the batch was not read to its end.
func (b *batch) answer() {
	b.patience(time.Now())
	b.w.Header().Set("Content-Type", "application/jsonl")
	if b.ended == errEnd {
		received(b.w, b.r)
	}
	out := bufio.NewWriterSize(b.w, 16<<10)
	lines := json.NewEncoder(terminal.Writer{W: out})
	for index, c := range b.codes {
		if index%1000 == 999 {
			b.patience(time.Now())
		}
		o := outcomes[c&^gotID]
		line := result{Index: index, Status: o.status, Code: o.code, Detail: b.details[index]}
		if o.code == published {
			line.Code = "" // its status says it
		}
		if c&gotID != 0 {
			line.MessageID = b.firstID.at(index)
		}
		_ = lines.Encode(line)
	}
	if f := b.ended; f != errEnd {
		_ = lines.Encode(result{
			Index: len(b.codes), Status: f.status, Code: f.code, Detail: f.detail +
				" This message and all after it were not read.",
		})
	}
	_ = out.Flush() // only a client that is gone can fail this
}
