package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
)

// publishing publishes the rows of one batch. It belongs to one goroutine; others wait for confirms and hand the rows
// back.
type publishing struct {
	s       *session
	rd      *batch
	ctx     context.Context
	until   time.Time // nothing more is sent after that
	flights chan *row // in the stream
	done    chan *row // never full
	waiting sync.WaitGroup

	broken       bool // the stream has to be given up
	out, singles int  // on their way
	careful      bool // a statement failed over a row that it read: rows are fetched one at a time
	keys         map[string]keyState
	again        []*row // have to be fetched once more
}

// keyState says whether rows of an ordering key can be sent.
type keyState uint8

const (
	keyFree  keyState = iota
	keyBusy           // one is on its way
	keyLost           // one was not sent: the others wait for the next batch
	keyAgain          // one has to be fetched once more, and so have the others after it
)

func (f *publishing) key(x *row) keyState {
	if !x.keyed {
		return keyFree
	}
	return f.keys[x.key]
}

func (f *publishing) setKey(x *row, state keyState) {
	if x.keyed {
		f.keys[x.key] = state
	}
}

// publish sends the rows that may be sent, and returns when the outcome of each is known, or is known to stay unknown.
// The error is the database's.
func (s *session) publish(ctx context.Context, rd *batch) (err error) {
	if len(rd.order) == 0 {
		return nil
	}
	largest := slices.MaxFunc(rd.order, func(a, b *row) int { return a.size - b.size })
	t := s.r.o.Database.timeout()
	pctx, cancel := context.WithTimeout(ctx, t+t/2+time.Duration(largest.size/slowest)*time.Second)
	defer cancel()
	defer context.AfterFunc(s.stop, func() { time.AfterFunc(stopPublishing, cancel) })()
	f := &publishing{
		s: s, rd: rd, ctx: pctx, until: time.Now().Add(t / 2), keys: map[string]keyState{},
		flights: make(chan *row, len(rd.order)), done: make(chan *row, len(rd.order)),
	}
	f.waiting.Go(func() {
		for x := range f.flights {
			x.err = x.receipt.Wait(pctx)
			f.done <- x
		}
	})
	defer f.waiting.Wait()
	err = f.work(ctx, f.refuse(rd.order))
	close(f.flights)
	for f.out > 0 {
		f.wait()
	}
	if f.broken { // not before: what is on its way may still be confirmed
		s.dropStream()
	}
	return err
}

// work fetches rows and sends them, in pieces for which there is memory. The error is the database's.
func (f *publishing) work(ctx context.Context, rows []*row) error {
	for len(rows) > 0 && !f.over() {
		n, memory := f.piece(rows)
		if !f.reserve(rows[:n], memory) {
			return nil
		}
		if err := f.fetch(ctx, rows[:n]); err != nil {
			return fmt.Errorf("read rows: %w", err)
		}
		if rows = rows[n:]; len(f.again) > 0 {
			rows = slices.Concat(f.again, rows)
			for _, x := range f.again {
				if f.key(x) == keyAgain {
					f.setKey(x, keyFree)
				}
			}
			f.again = nil
		}
	}
	return nil
}

// over reports whether nothing more is to be sent in this batch.
func (f *publishing) over() bool {
	return f.rd.trouble != nil || f.s.stop.Err() != nil || f.ctx.Err() != nil || time.Now().After(f.until)
}

// send publishes a row by what fetchSQL gives after its place. It waits for the row's predecessor of the same key.
func (f *publishing) send(x *row, columns [][]byte) {
	f.collect()
	for f.key(x) == keyBusy {
		f.wait()
	}
	if f.over() || f.key(x) == keyLost {
		return
	}
	if f.key(x) == keyAgain {
		f.again = append(f.again, x)
		return
	}
	var err error
	if sizes := columns[len(fetched)+2]; sizes != nil { // the row is larger than was thought
		if err = x.measured(string(sizes), f.s.r.o.Memory.Limit()); err == nil {
			f.again = append(f.again, x)
			f.setKey(x, keyAgain)
			return
		}
	} else {
		err = f.fill(x, columns)
	}
	if err != nil {
		f.settle(x, err)
		return
	}
	f.s.r.begin(x)
	if x.alone {
		f.single(x)
	} else {
		f.streamed(x)
	}
}

// fill makes the message of a row.
func (f *publishing) fill(x *row, columns [][]byte) error {
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
	if err := f.s.table.publication(x, columns[1:], f.s.r.o.Exchange, &f.s.texts); err != nil {
		return err
	}
	attempts, _ := strconv.Atoi(string(columns[len(fetched)+1])) // 0 for NULL
	until, suspected := f.s.suspects[x.pub.Exchange]
	x.alone = attempts > 0 || suspected && time.Now().Before(until)
	return nil
}

// streamed puts a row into the stream.
func (f *publishing) streamed(x *row) {
	if f.s.stream == nil {
		stream, err := f.s.r.o.Publisher.Stream(f.ctx)
		if err != nil {
			f.settle(x, err)
			return
		}
		stream.Gather()
		f.s.stream = stream
	}
	var err error
	if x.receipt, err = f.s.stream.Send(f.ctx, &x.pub); err != nil {
		f.settle(x, err)
		return
	}
	f.sent(x)
	f.flights <- x
}

// single publishes a row on a channel of its own.
func (f *publishing) single(x *row) {
	for f.singles >= maxSingles {
		f.wait()
	}
	f.sent(x)
	f.singles++
	f.waiting.Go(func() {
		x.err = f.s.r.o.Publisher.Publish(f.ctx, &x.pub)
		f.done <- x
	})
}

func (f *publishing) sent(x *row) {
	f.out++
	x.away = true
	f.setKey(x, keyBusy)
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
	if f.key(x) == keyBusy { // a later row of the key may have failed meanwhile
		f.setKey(x, keyFree)
	}
	f.settle(x, x.err)
}

// settle records the outcome of a row.
func (f *publishing) settle(x *row, err error) {
	x.err, x.result = err, resultOf(err)
	x.span.Produced(x.result.String(), err)
	if errors.Is(err, broker.ErrRefused) {
		remember(f.s.suspects, x.pub.Exchange, suspicion)
	}
	f.s.reuse(x.body)
	f.give(x, 0)
	x.body, x.pub = nil, broker.Publication{}
	if x.result == sent {
		return
	}
	f.setKey(x, keyLost)
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
