package outbox

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"sidecar/internal/broker"
)

const (
	maxSingles = 8       // messages on their way outside the stream
	slowest    = 4 << 20 // bytes per second of a link that large bodies still get through

	// A refusal closes the stream's channel and leaves all that are on it unknown. So exchanges that had rows on it then
	// are published to outside the stream for so long, each message on a channel of its own: the refusal then hits its
	// cause.
	suspicion = 30 * time.Second

	freeBuffer = 8 << 10 // a larger one is not kept; kept buffers are not counted in the memory budget
	maxFree    = 512
)

// publishing publishes the rows of one batch. It belongs to one goroutine; others wait for confirms and hand the rows
// back.
type publishing struct {
	s       *session
	rd      *batch
	ctx     context.Context
	until   time.Time // nothing more is sent after that
	flights chan flight
	done    chan *row // never full
	waiting sync.WaitGroup

	broken       bool // the stream has to be given up
	out, singles int  // on their way
	again        int  // have to be fetched once more
	careful      bool // rows are fetched one at a time
	// Keys with a row on its way, with one that was not sent, and with one that has to be fetched once more.
	busy, lost, after map[string]bool
}

type flight struct {
	x       *row
	receipt *broker.Receipt
}

// publish sends the rows that may be sent, and returns when the outcome of each is known, or is known to stay unknown.
// The error is the database's.
func (s *session) publish(ctx context.Context, rd *batch) (err error) {
	if len(rd.order) == 0 {
		return nil
	}
	largest := 0
	for _, x := range rd.order {
		largest = max(largest, x.size)
	}
	t := s.r.o.Database.timeout()
	pctx, cancel := context.WithTimeout(s.publishing, t+t/2+time.Duration(largest/slowest)*time.Second)
	defer cancel()
	f := &publishing{
		s: s, rd: rd, ctx: pctx, until: time.Now().Add(t / 2), careful: s.careful,
		flights: make(chan flight, len(rd.order)), done: make(chan *row, len(rd.order)),
		busy: map[string]bool{}, lost: map[string]bool{}, after: map[string]bool{},
	}
	s.careful = false
	f.waiting.Go(func() {
		for fl := range f.flights {
			fl.x.err = fl.receipt.Wait(pctx)
			f.done <- fl.x
		}
	})
	defer f.waiting.Wait()
	err = f.work(ctx, f.refuse(rd.order))
	close(f.flights)
	for f.out > 0 {
		f.wait()
	}
	for _, x := range rd.order {
		f.give(x, 0)
	}
	if f.broken { // not before: what is on its way may still be confirmed
		s.dropStream()
	}
	return err
}

// work fetches rows and sends them, in pieces for which there is memory. The error is the database's.
func (f *publishing) work(ctx context.Context, rows []*row) error {
	for len(rows) > 0 && !f.over() {
		piece := rows[:f.piece(rows)]
		if !f.reserve(piece) {
			return nil
		}
		done, err := f.fetch(ctx, piece)
		if err != nil {
			return err
		}
		rows = rows[done:]
	}
	return nil
}

// refuse lets rows fail that cannot be fetched, and returns the others.
func (f *publishing) refuse(order []*row) []*row {
	limit := f.s.r.o.Memory.Limit()
	rows := make([]*row, 0, len(order))
	for _, x := range order {
		if err := x.check(limit); err != nil {
			f.settle(x, err)
		} else {
			rows = append(rows, x)
		}
	}
	return rows
}

// over reports whether nothing more is to be sent in this batch.
func (f *publishing) over() bool {
	return f.rd.trouble != nil || f.s.stopping() || f.ctx.Err() != nil || time.Now().After(f.until)
}

// send publishes a row by what fetchSQL gives after its place. It waits for the row's predecessor of the same key.
func (f *publishing) send(x *row, columns [][]byte) {
	f.collect()
	for x.keyed && f.busy[x.key] {
		f.wait()
	}
	if f.over() || x.keyed && f.lost[x.key] {
		return
	}
	if x.keyed && f.after[x.key] {
		f.later(x)
		return
	}
	if err := f.fill(x, columns); err != nil {
		f.settle(x, err)
	} else if !x.again {
		f.publish(x)
	}
}

// fill makes the message of a row. Where the row is larger than was thought, it has to be fetched once more.
func (f *publishing) fill(x *row, columns [][]byte) error {
	if sizes := columns[len(fetched)+2]; sizes != nil {
		err := x.measured(string(sizes))
		if err == nil {
			err = x.check(f.s.r.o.Memory.Limit())
		}
		if err == nil {
			f.later(x)
		}
		return err
	}
	others := 0
	for i, name := range fetched {
		n := len(columns[1+i])
		if err := checkColumn(name, n); err != nil {
			return err
		}
		others += n
	}
	f.give(x, cost(len(columns[0]), others))
	x.body = append(f.s.buffer(len(columns[0])), columns[0]...)
	x.attempts, _ = strconv.Atoi(string(columns[len(fetched)+1])) // 0 for NULL
	return f.s.table.publication(x, columns[1:], f.s.r.o.Exchange, &f.s.texts)
}

// publish sends the message of a row.
func (f *publishing) publish(x *row) {
	x.exchange = x.pub.Exchange
	f.s.r.begin(x)
	if x.attempts > 0 || f.s.suspected(x.pub.Exchange) {
		f.single(x)
	} else {
		f.streamed(x)
	}
}

// streamed puts a row into the stream.
func (f *publishing) streamed(x *row) {
	stream, err := f.s.openStream(f.ctx)
	if err != nil {
		f.settle(x, err)
		return
	}
	receipt, err := stream.Send(f.ctx, &x.pub)
	if err != nil {
		f.settle(x, err)
		return
	}
	f.sent(x)
	f.flights <- flight{x, receipt}
}

// single publishes a row on a channel of its own.
func (f *publishing) single(x *row) {
	for f.singles >= maxSingles {
		f.wait()
	}
	f.sent(x)
	f.singles++
	x.alone = true
	f.waiting.Go(func() {
		x.err = f.s.r.o.Publisher.Publish(f.ctx, &x.pub)
		f.done <- x
	})
}

func (f *publishing) sent(x *row) {
	f.out++
	x.away = true
	if x.keyed {
		f.busy[x.key] = true
	}
}

// collect takes back the rows that are known about by now.
func (f *publishing) collect() {
	for f.out > 0 {
		select {
		case x := <-f.done:
			f.confirmed(x)
		default:
			return
		}
	}
}

// wait takes back one row. It ends, because every wait for a confirm does.
func (f *publishing) wait() {
	f.s.flush()
	f.confirmed(<-f.done)
}

func (f *publishing) confirmed(x *row) {
	f.out--
	if x.alone {
		f.singles--
	}
	if x.keyed {
		delete(f.busy, x.key)
	}
	f.settle(x, x.err)
}

// settle records the outcome of a row.
func (f *publishing) settle(x *row, err error) {
	x.err, x.result = err, resultOf(err)
	x.span.Produced(x.result.String(), err)
	f.s.reuse(x.body)
	f.give(x, 0)
	x.body, x.pub = nil, broker.Publication{}
	if x.result == sent {
		return
	}
	if x.keyed {
		f.lost[x.key] = true
	}
	if errors.Is(err, broker.ErrRefused) {
		f.s.suspect(x.exchange)
	}
	if x.result == unknown || x.result == untouched {
		f.broken = f.broken || !x.alone
		f.rd.trouble = err
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
