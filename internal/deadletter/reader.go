package deadletter

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/topology/declare"
)

const (
	firstWindow = 8
	// maxWindow bounds how many messages are on their way to us at once. It bounds memory as well: it is unknown how large
	// the next message is.
	maxWindow = 4000
	// orderedWindow is the largest window that RabbitMQ before 4.0 requeues in order: a quorum queue keeps the unacked
	// messages of a consumer in a map, and Erlang's maps lose the order of more than 32 keys.
	orderedWindow = 32
	// windowBytes is what a window may hold of messages as large as the largest so far.
	windowBytes = 16 << 20

	// idle is how long nothing must have come for the broker to be asked whether there is anything left.
	idle = 250 * time.Millisecond
	// stalled is how long a queue that says it has messages may deliver none. A quorum queue of a million may be busy with
	// itself for a while.
	stalled = 2 * time.Minute
)

// reader takes the messages of the queue one after the other, without settling them, and gives back at its end what has
// not been acked. What it holds is unacked in the broker and weighs nothing here: a window can only hold so many, so
// when one is full of messages that stay, its consumer is cancelled and another one takes the next.
//
//	guard   1                          until the end
//	        2 … 9                      a window: full, cancelled, its messages stay unacked
//	              10 … 41              the next one, larger
//	                      42 …  total
//	        └──────── nack, all at once ────────┘ keeps their order
//
// A quorum queue keeps returned messages in a list of their own, before all others, and adds to its end: who takes some
// of it and gives that back has put it behind the rest. So all of it is taken before anything is requeued, see
// restore.
//
// next is for one goroutine; ack is for any.
type reader struct {
	q      *Queue
	s      *broker.Session
	locked bool
	sub    *broker.Subscription
	guard  *broker.Consumer
	kept   declare.Kept
	asked  bool      // kept is what the broker has said
	since  time.Time // the first message may have been held from then on

	ready int  // messages at the start: later ones are not read
	total int  // of those, how many to read
	seen  int  // of those, how many have been given out
	exact bool // take no message beyond total: a window's consumer is cancelled before the first of it is given out
	empty bool // nothing is expected to stay
	again bool // the last message taken comes from the returned messages of a quorum queue

	window  *broker.Consumer
	size    int // of the window
	largest int // body so far, in bytes
	waiting []*broker.Delivery
	buffer  []*broker.Delivery

	acks     sync.Mutex // held while acks are sent, and while a window ends
	mu       sync.Mutex
	spans    []span // of all windows so far, the guard's first
	taken    int    // by the window, acked or not
	acked    int    // of those
	staying  int    // of those, kept
	guardTag uint64
	drop     bool          // the guard's message is to be acked in the end
	freed    chan struct{} // holds a value when acked has changed
}

// span is what one consumer has taken.
type span struct {
	first uint64   // delivery tag; 0 until something came
	kept  uint64   // the last that stays; 0: none
	held  int      // taken and not acked
	stays []uint64 // all that stay, if the window is too large to requeue them at once
}

// of finds the span of a delivery: one of the last.
func (w *reader) of(tag uint64) *span {
	for i := len(w.spans) - 1; i > 0; i-- {
		if s := &w.spans[i]; s.first != 0 && tag >= s.first {
			return s
		}
	}
	return &w.spans[0]
}

// current reports whether a message is of the window that is open.
func (w *reader) current(tag uint64) bool {
	last := w.spans[len(w.spans)-1].first
	return len(w.spans) > 1 && last != 0 && tag >= last
}

// open connects and becomes the only consumer. The reader must be closed. Once connected, open is not interrupted: a
// caller that ends in the middle cannot requeue the guard's message.
func (q *Queue) open(ctx context.Context) (*reader, error) {
	if err := q.hasMemory(ctx); err != nil {
		return nil, err
	}
	s, err := q.dialer.Dial(ctx)
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	w := &reader{q: q, s: s, since: time.Now(), freed: make(chan struct{}, 1), spans: []span{{}}}
	if err = w.checkSuitable(ctx); err == nil {
		if w.sub, err = s.Subscribe(ctx, q.name, 1); err == nil {
			err = w.claimQueue(ctx)
		}
	}
	if err == nil && w.ready > 0 && !w.asked {
		err = w.checkSuitable(ctx)
	}
	if err != nil {
		s.Close() // which gives back what the guard may have taken
		w.free()
		return nil, err
	}
	return w, nil
}

// firstCost is what a first message may take in memory without its body.
const firstCost = 1 << 20

// hasMemory waits for the memory that a first message takes without its body. Its headers say how often it has been
// given back: without them the queue could not be read safely, because each read requeues the message once more,
// until the delivery limit of the queue drops it.
func (q *Queue) hasMemory(ctx context.Context) error {
	m := q.o.Broker.Memory
	n := min(firstCost, m.Limit()/2)
	ctx, cancel := context.WithTimeout(ctx, q.o.Broker.MemoryPatience)
	defer cancel()
	if !m.Wait(n, ctx.Done()) {
		return fmt.Errorf("%w now: other messages use all of SIDECAR_MEMORY", ErrUnsafe)
	}
	m.Give(n)
	return nil
}

// next returns the next message, which is the caller's until it has reported keep or ack. io.EOF after the last one.
func (w *reader) next(ctx context.Context) (*broker.Delivery, error) {
	if w.seen >= w.total {
		return nil, io.EOF
	}
	if w.guardTag == 0 {
		return w.fromGuard(ctx)
	}
	for quiet := time.Duration(0); ; {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if len(w.waiting) > 0 {
			d := w.waiting[0]
			w.waiting = w.waiting[1:]
			w.count(d)
			return d, nil
		}
		if w.window == nil || w.full() {
			if err := w.nextWindow(ctx); err != nil {
				return nil, err
			}
			if w.window == nil {
				continue
			}
		}
		came, err := w.receive(ctx, w.window, idle)
		if w.exact && err == nil {
			err = w.fillWindow(ctx)
		}
		if err != nil {
			return nil, err
		}
		if came {
			quiet = 0
			continue
		}
		if quiet += idle; quiet%(4*idle) != 0 {
			continue
		}
		if over, err := w.exhausted(ctx, quiet); over || err != nil {
			return nil, err
		}
	}
}

// fromGuard returns the message that the guard has taken.
func (w *reader) fromGuard(ctx context.Context) (*broker.Delivery, error) {
	for quiet := time.Duration(0); len(w.waiting) == 0; quiet += idle {
		if _, err := w.receive(ctx, w.guard, idle); err != nil {
			return nil, err
		}
		if quiet > stalled {
			return nil, w.stalled()
		}
	}
	d := w.waiting[0]
	w.waiting = w.waiting[1:]
	w.mu.Lock()
	w.guardTag = d.DeliveryTag
	w.mu.Unlock()
	w.count(d)
	return d, nil
}

// count counts a message that is given out.
func (w *reader) count(d *broker.Delivery) {
	w.seen++
	w.largest = max(w.largest, len(d.Body)+int(d.Missing))
}

// receive waits a moment for messages and appends them to waiting.
func (w *reader) receive(ctx context.Context, c *broker.Consumer, patience time.Duration) (came bool, err error) {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-c.Ready():
	case <-w.freed: // the window may have to roll, or more comes
		return true, nil
	case <-w.sub.Done():
		return false, w.q.missing(w.sub.Err())
	case <-w.s.Done():
		return false, w.s.Err()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-t.C:
		return false, nil
	}
	return w.collect(c), nil
}

func (w *reader) collect(c *broker.Consumer) (came bool) {
	w.buffer, _ = c.Take(w.buffer)
	w.mu.Lock()
	s := &w.spans[0]
	if c == w.window {
		s = &w.spans[len(w.spans)-1]
		w.taken += len(w.buffer)
	}
	if s.held += len(w.buffer); len(w.buffer) > 0 && s.first == 0 {
		s.first = w.buffer[0].DeliveryTag
	}
	w.mu.Unlock()
	if n := len(w.buffer); n > 0 {
		w.again = wasReturned(w.buffer[n-1])
	}
	w.waiting = append(w.waiting, w.buffer...)
	return len(w.buffer) > 0
}

// wasReturned reports whether a quorum queue has the message back from a consumer. Classic queues put it in its place
// again.
func wasReturned(d *broker.Delivery) bool {
	d.DecodeHeaders()
	_, counted := d.Headers["x-delivery-count"]
	_, acquired := d.Headers["x-acquired-count"] // all that newer brokers count
	return d.Redelivered && (counted || acquired)
}

// requeuesToTail: a quorum queue without a delivery limit puts requeued messages behind everything else: before
// RabbitMQ 4.0 one that names none, since then one that names a negative limit. Only giving back all of it leaves its
// order.
func (w *reader) requeuesToTail() bool {
	return w.kept.Quorum && (w.kept.Limit < 0 || !w.kept.Named && w.s.Major() < 4)
}

// fillWindow waits until the window is full and cancels its consumer.
func (w *reader) fillWindow(ctx context.Context) error {
	for quiet := time.Duration(0); w.taken < w.size; {
		came, err := w.receive(ctx, w.window, idle)
		if err != nil {
			return err
		}
		if quiet += idle; came {
			quiet = 0
		}
		if quiet > stalled {
			return w.stalled()
		}
	}
	return w.window.Stop(ctx)
}

// full reports whether the window cannot take more and a new one would help: half of it is messages that stay, or it is
// smaller than it may be.
func (w *reader) full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.exact {
		return true // the caller has been given all of it
	}
	return w.taken-w.acked >= w.size && (2*w.staying >= w.size || w.size < w.nextSize())
}

// nextSize is the size the next window would have.
func (w *reader) nextSize() int {
	n := firstWindow
	if w.size > 0 {
		n = min(4*w.size, w.largestWindow())
	}
	if w.largest > 0 {
		n = min(n, max(windowBytes/w.largest, 1))
	}
	return max(min(n, w.total-w.seen), 1)
}

func (w *reader) largestWindow() int {
	if w.unordered() && !w.empty {
		return orderedWindow
	}
	return maxWindow
}

// unordered reports whether the queue may lose the order of more than orderedWindow messages that are requeued at once.
func (w *reader) unordered() bool { return w.s.Major() < 4 && (w.kept.Quorum || !w.kept.Known) }

// nextWindow begins the next window. The old consumer goes first, so that the messages come in their order.
func (w *reader) nextWindow(ctx context.Context) error {
	size := w.nextSize()
	if w.window != nil && !w.exact {
		if err := w.endWindow(ctx); err != nil {
			return err
		}
		came := w.collect(w.window)
		w.window = nil // a consumer that has ended always has something to say, and never anything new
		if came {
			return nil // first those; the next one begins when they have been given out
		}
	}
	w.mu.Lock()
	w.spans = append(w.spans, span{})
	w.taken, w.acked, w.staying, w.size = 0, 0, 0, size
	w.mu.Unlock()
	var err error
	if w.window, err = w.sub.Consume(ctx, size); err != nil {
		return w.q.missing(err)
	}
	return nil
}

// exhausted reports that there is nothing left although fewer have come than there were: another consumer has taken the
// rest.
func (w *reader) exhausted(ctx context.Context, quiet time.Duration) (over bool, err error) {
	d, err := w.q.depth(ctx, w.s)
	switch {
	case err != nil:
		return false, err
	// the guard is one: without any the queue has no leader, and the count is unknown
	case d.Ready == 0 && d.Consumers > 0:
		if w.collect(w.window) {
			return false, nil
		}
		return true, io.EOF
	case quiet > stalled && !w.busy():
		return false, w.stalled()
	}
	return false, nil
}

// busy reports whether the window waits for us and not for the broker.
func (w *reader) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.taken-w.acked >= w.size
}

func (w *reader) stalled() error {
	return fmt.Errorf("%w: queue %q delivers nothing although it holds messages", ErrStopped, w.q.name)
}

// keep says that d stays where it is. Its memory is given back.
func (w *reader) keep(d *broker.Delivery) {
	tag := d.DeliveryTag
	d.Free()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current(tag) {
		w.staying++
	}
	s := w.of(tag)
	s.kept = max(s.kept, tag)
	if w.size > orderedWindow && w.unordered() {
		s.stays = append(s.stays, tag)
	}
}

// ack removes a message from the queue. The guard's goes last: it holds the place of the guard, which would take
// another one out of its order.
func (w *reader) ack(tag uint64) error {
	w.acks.Lock()
	defer w.acks.Unlock()
	w.mu.Lock()
	guard := tag == w.guardTag
	if guard {
		w.drop = true
	} else {
		w.of(tag).held--
	}
	if !guard && w.current(tag) {
		w.acked++
	}
	w.mu.Unlock()
	if guard {
		return nil
	}
	err := w.sub.Ack(tag, false)
	select {
	case w.freed <- struct{}{}:
	default:
	}
	return err
}
