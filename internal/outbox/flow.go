package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"sidecar/internal/broker"
)

const (
	maxBytes   = 32 << 20 // of bodies on their way to the broker, unless one alone is larger
	chunkBytes = 4 << 20  // of bodies that one statement fetches, unless one alone is larger
	maxSingles = 8        // messages on their way outside the pipe
	slowest    = 4 << 20  // bytes per second of a link that large bodies still get through

	// A refusal closes the pipe's channel and leaves all that are on it unknown. So exchanges that had rows on it then are
	// published to outside the pipe for so long, each message on a channel of its own: the refusal then hits its cause.
	suspicion = 30 * time.Second

	freeBuffer = 64 << 10 // a larger one is not kept
	maxFree    = 512
)

// flow publishes the rows of one round. It belongs to one goroutine; others wait for confirms and hand the rows back.
type flow struct {
	s       *session
	rd      *round
	ctx     context.Context
	until   time.Time // nothing more is sent after that
	flights chan flight
	done    chan *row // never full
	waiting sync.WaitGroup

	broken              bool            // the pipe has to be given up
	out, singles, bytes int             // on their way
	busy, lost          map[string]bool // keys with a row on its way, and with one that was not sent
}

type flight struct {
	x       *row
	receipt *broker.Receipt
}

// publish sends the rows that may be, and returns when it knows what became of each, or knows that it will not. The error
// is the database's.
func (s *session) publish(ctx context.Context, rd *round) (err error) {
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
	f := &flow{
		s: s, rd: rd, ctx: pctx, until: time.Now().Add(t / 2),
		flights: make(chan flight, len(rd.order)), done: make(chan *row, len(rd.order)),
		busy: map[string]bool{}, lost: map[string]bool{},
	}
	f.waiting.Go(func() {
		for fl := range f.flights {
			fl.x.err = fl.receipt.Wait(pctx)
			f.done <- fl.x
		}
	})
	defer f.waiting.Wait()
	for next := 0; next < len(rd.order) && !f.over() && err == nil; {
		end, size := next, 0
		for end < len(rd.order) && (end == next || size+rd.order[end].size <= chunkBytes) {
			size += rd.order[end].size
			end++
		}
		err = s.fetch(ctx, rd.order[next:end], f.send)
		s.flush()
		next = end
	}
	close(f.flights)
	for f.out > 0 {
		f.wait()
	}
	if f.broken { // not before: what is on its way may still be confirmed
		s.dropPipe()
	}
	return err
}

// fetch reads the contents of rows and gives each to send, in their order.
func (s *session) fetch(ctx context.Context, rows []*row, send func(x *row, columns [][]byte)) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	list := array(len(rows), func(i int) (string, bool) { return rows[i].id, rows[i].size > maxBody })
	formats := make([]int16, 2+len(fetched))
	if !s.table.BodyJSON() {
		formats[1] = 1 // bytes as they are
	}
	for _, x := range rows {
		if x.size > maxBody {
			send(x, nil)
		}
	}
	r := s.conn.ExecPrepared(ctx, stmtFetch, [][]byte{list}, nil, formats)
	for r.NextRow() {
		v := r.Values()
		n, err := strconv.Atoi(string(v[0]))
		if err != nil || n < 1 || n > len(rows) {
			return fmt.Errorf("read rows: row %q", v[0])
		}
		send(rows[n-1], v[1:])
	}
	if _, err := r.Close(); err != nil {
		return fmt.Errorf("read rows: %w", err)
	}
	return nil
}

// over reports that nothing more is to be sent in this round.
func (f *flow) over() bool {
	return f.rd.trouble != nil || f.s.stopping() || f.ctx.Err() != nil || time.Now().After(f.until)
}

// send publishes a row: columns are its body and what fetched lists. It waits until there is room, and for the row's
// predecessor of the same key.
func (f *flow) send(x *row, columns [][]byte) {
	f.collect()
	for x.keyed && f.busy[x.key] {
		f.wait()
	}
	if f.over() || x.keyed && f.lost[x.key] {
		return
	}
	if columns == nil {
		f.settle(x, errRow("a body of %d bytes: no broker takes more than %d", x.size, maxBody))
		return
	}
	x.size = len(columns[0])
	for f.out > 0 && f.bytes+x.size > maxBytes {
		f.wait()
	}
	if f.over() {
		return
	}
	x.body = append(f.s.buffer(x.size), columns[0]...)
	x.attempts, _ = strconv.Atoi(string(columns[len(fetched)])) // null is none
	if err := f.s.table.publication(x, columns[1:], f.s.r.o.Exchange, &f.s.texts); err != nil {
		f.settle(x, err)
		return
	}
	x.exchange = x.pub.Exchange
	f.s.r.begin(x)
	if x.attempts > 0 || f.s.suspected(x.pub.Exchange) {
		f.single(x)
	} else {
		f.piped(x)
	}
}

// piped puts a row into the pipe.
func (f *flow) piped(x *row) {
	pipe, err := f.s.openPipe(f.ctx)
	if err != nil {
		f.settle(x, err)
		return
	}
	receipt, err := pipe.Send(f.ctx, &x.pub)
	if err != nil {
		f.settle(x, err)
		return
	}
	f.depart(x)
	f.flights <- flight{x, receipt}
}

// single publishes a row on a channel of its own.
func (f *flow) single(x *row) {
	for f.singles >= maxSingles {
		f.wait()
	}
	f.depart(x)
	f.singles++
	x.alone = true
	f.waiting.Go(func() {
		x.err = f.s.r.o.Publisher.Publish(f.ctx, &x.pub)
		f.done <- x
	})
}

func (f *flow) depart(x *row) {
	f.out++
	f.bytes += x.size
	if x.keyed {
		f.busy[x.key] = true
	}
}

// collect takes back the rows that are known about by now.
func (f *flow) collect() {
	for f.out > 0 {
		select {
		case x := <-f.done:
			f.arrive(x)
		default:
			return
		}
	}
}

// wait takes back one row. It ends, because every wait for a confirm does.
func (f *flow) wait() {
	f.s.flush()
	f.arrive(<-f.done)
}

func (f *flow) arrive(x *row) {
	f.out--
	f.bytes -= x.size
	if x.alone {
		f.singles--
	}
	if x.keyed {
		delete(f.busy, x.key)
	}
	f.settle(x, x.err)
}

// settle notes what became of a row.
func (f *flow) settle(x *row, err error) {
	x.err, x.result = err, judge(err)
	x.span.Produced(x.result.String(), err)
	f.s.keep(x.body)
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

// judge says what an error of a publish means for the row.
func judge(err error) result {
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
