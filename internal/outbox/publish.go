package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/broker"
	"sidecar/internal/message"
)

const (
	maxSingles = 8       // messages on their way outside the stream
	slowest    = 4 << 20 // bytes per second of a link that large bodies still get through

	// A refusal closes the stream's channel and leaves all that are on it unknown. So exchanges that had rows on it then
	// are published to outside the stream for so long, each message on a channel of its own: the refusal then hits its
	// cause.
	suspicion = 30 * time.Second
)

// publishing publishes the rows of one batch. It belongs to one goroutine; others wait for confirms and hand the rows
// back.
type publishing struct {
	s       *session
	batch   *batch
	ctx     context.Context
	until   time.Time // nothing more is sent after that
	flights chan *row // in the stream
	done    chan *row // never full
	waiting sync.WaitGroup

	broken       bool   // the stream has to be given up
	out, singles int    // on their way
	careful      bool   // a statement failed over a row that it read: rows are fetched one at a time
	again        []*row // have to be fetched once more
}

// keyState says whether rows of an ordering key can be sent. A row without a key has one of its own.
type keyState uint8

const (
	keyFree  keyState = iota
	keyBusy           // one is on its way
	keyLost           // one was not sent: the others wait for the next batch
	keyAgain          // one has to be fetched once more, and so have the others after it
)

// publish sends the rows that may be sent, and returns when the outcome of each is known, or is known to stay unknown.
// The error is the database's.
func (s *session) publish(ctx context.Context, b *batch) (err error) {
	if len(b.order) == 0 {
		return nil
	}
	if s.stream != nil && s.stream.Ended() {
		s.dropStream() // nothing is under way
	}
	largest := slices.MaxFunc(b.order, func(a, b *row) int { return a.size - b.size })
	t := s.r.o.Database.timeout()
	pctx, cancel := context.WithTimeout(ctx, t+t/2+time.Duration(largest.size/slowest)*time.Second)
	defer cancel()
	defer context.AfterFunc(s.stop, func() { time.AfterFunc(stopPublishing, cancel) })()
	p := &publishing{
		s: s, batch: b, ctx: pctx, until: time.Now().Add(t / 2),
		flights: make(chan *row, len(b.order)), done: make(chan *row, len(b.order)),
	}
	p.waiting.Go(func() {
		for x := range p.flights {
			x.err = x.receipt.Wait(pctx)
			p.done <- x
		}
	})
	defer p.waiting.Wait()
	s.makeRoom(b.order)
	err = p.work(ctx, p.refuse(b.order))
	close(p.flights)
	for p.out > 0 {
		p.wait()
	}
	if p.broken { // not before: what is on its way may still be confirmed
		s.dropStream()
	}
	return err
}

// work fetches rows and sends them, in pieces for which there is memory. The error is the database's.
func (p *publishing) work(ctx context.Context, rows []*row) error {
	for len(rows) > 0 && !p.over() {
		n, memory := p.piece(rows)
		if !p.reserve(rows[:n], memory) {
			return nil
		}
		if err := p.fetch(ctx, rows[:n]); err != nil {
			return fmt.Errorf("read rows: %w", err)
		}
		if rows = rows[n:]; len(p.again) > 0 {
			rows = slices.Concat(p.again, rows)
			for _, x := range p.again {
				if x.first.state == keyAgain {
					x.first.state = keyFree
				}
			}
			p.again = nil
		}
	}
	return nil
}

// over reports whether nothing more is to be sent in this batch.
func (p *publishing) over() bool {
	return p.batch.trouble != nil || p.s.stop.Err() != nil || p.ctx.Err() != nil || time.Now().After(p.until)
}

// send publishes a row by what fetchSQL gives after its place. It waits for the row's predecessor of the same key.
func (p *publishing) send(x *row, columns [][]byte) {
	for len(p.done) > 0 {
		p.finish(<-p.done)
	}
	for x.first.state == keyBusy {
		p.wait()
	}
	if p.over() || x.first.state == keyLost {
		return
	}
	if x.first.state == keyAgain {
		p.again = append(p.again, x)
		return
	}
	var err error
	if sizes := columns[len(fetched)+2]; sizes != nil { // the row is larger than was thought
		if err = x.measured(string(sizes), p.s.r.o.Memory.Limit()); err == nil {
			p.again = append(p.again, x)
			x.first.state = keyAgain
			return
		}
	} else {
		err = p.fill(x, columns)
	}
	if err != nil {
		p.record(x, err)
		return
	}
	p.s.r.startSpan(x)
	if x.alone {
		p.single(x)
	} else {
		p.streamed(x)
	}
}

// fill makes the message of a row.
func (p *publishing) fill(x *row, columns [][]byte) error {
	others := 0
	for i, name := range fetched {
		n := len(columns[1+i])
		if err := checkColumn(name, n); err != nil {
			return err
		}
		others += n
	}
	p.give(x, cost(len(columns[0]), others))
	x.body = p.s.keep(columns[0])
	if err := p.s.table.publication(x, columns[1:], p.s.r.o.Exchange); err != nil {
		return err
	}
	if m := &x.pub.Msg; m.ContentType == "" {
		m.ContentType = amqpvalue.DefaultType(p.s.r.o.DefaultType, m.Body)
	}
	attempts, _ := strconv.Atoi(string(columns[len(fetched)+1])) // 0 for NULL
	until, suspected := p.s.suspects[x.pub.Exchange]
	x.alone = attempts > 0 || suspected && time.Now().Before(until)
	return nil
}

// maxBodies bounds the memory that is kept from batch to batch, besides what is reserved.
const maxBodies = 512 << 10

// makeRoom prepares the memory for the bodies of a batch: what the last batch had, if it fits. Its bodies are of no use
// any more once all of its rows were sent.
func (s *session) makeRoom(rows []*row) {
	n := 0
	for _, x := range rows {
		n = min(n+x.size, maxBodies)
	}
	if s.bodies = s.bodies[:0]; cap(s.bodies) < n || cap(s.bodies) > 8*n {
		s.bodies = make([]byte, 0, n)
	}
}

// keep copies a body out of the connection's buffer.
func (s *session) keep(body []byte) []byte {
	n := len(s.bodies)
	if n+len(body) > cap(s.bodies) {
		return bytes.Clone(body)
	}
	s.bodies = append(s.bodies, body...)
	return s.bodies[n:len(s.bodies):len(s.bodies)]
}

// streamed puts a row into the stream.
func (p *publishing) streamed(x *row) {
	if p.s.stream == nil {
		stream, err := p.s.r.o.Publisher.Stream(p.ctx)
		if err != nil {
			p.record(x, err)
			return
		}
		stream.Gather()
		p.s.stream = stream
	}
	var err error
	if x.receipt, err = p.s.stream.Send(p.ctx, &x.pub); err != nil {
		p.record(x, err)
		return
	}
	p.sent(x)
	p.flights <- x
}

// single publishes a row on a channel of its own.
func (p *publishing) single(x *row) {
	for p.singles >= maxSingles {
		p.wait()
	}
	p.sent(x)
	p.singles++
	p.waiting.Go(func() {
		x.err = p.s.r.o.Publisher.Publish(p.ctx, &x.pub)
		p.done <- x
	})
}

func (p *publishing) sent(x *row) {
	p.out++
	x.away = true
	x.first.state = keyBusy
}

// wait takes back one row. It ends, because every wait for a confirm does.
func (p *publishing) wait() {
	p.s.flush()
	p.finish(<-p.done)
}

// finish takes back a row whose publish has ended, confirmed or not.
func (p *publishing) finish(x *row) {
	p.out--
	if x.alone {
		p.singles--
	}
	if x.first.state == keyBusy { // a later row of the key may have failed meanwhile
		x.first.state = keyFree
	}
	p.record(x, x.err)
}

// record stores the outcome of a row.
func (p *publishing) record(x *row, err error) {
	x.err, x.result = err, resultOf(err)
	x.span.Produced(x.result.String(), err)
	if errors.Is(err, broker.ErrRefused) {
		remember(p.s.suspects, x.pub.Exchange, suspicion)
	}
	broker.Give(p.s.r.o.Memory, x.memory, err)
	x.memory, x.body, x.pub = 0, nil, message.Publication{}
	if x.result == sent {
		return
	}
	p.s.bodies = nil // a dry run that had no answer may go on reading
	x.first.state = keyLost
	if x.result == unknown || x.result == untouched {
		p.broken = p.broken || !x.alone
		p.batch.trouble = err
	}
}

// resultOf says what an error of a publish means for the row.
func resultOf(err error) result {
	switch {
	case err == nil:
		return sent
	case errors.Is(err, broker.ErrUnknown): // first: its text may hold a refusal, which was of another message
		return unknown
	case errors.Is(err, broker.ErrDisconnected), errors.Is(err, broker.ErrBlocked), errors.Is(err, broker.ErrBusy):
		return untouched
	case errors.Is(err, broker.ErrNacked):
		return nacked
	case errors.Is(err, broker.ErrInvalid), errors.Is(err, broker.ErrTooLarge), errors.Is(err, broker.ErrRefused),
		errors.Is(err, broker.ErrUnroutable):
		return failed
	}
	return untouched // the connection's
}
