package deadletter

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"sidecar/internal/broker"
)

const (
	firstWindow = 8
	// maxWindow bounds how many messages are on their way to us at once. It bounds memory as well: nobody knows how large
	// the next message is.
	maxWindow = 500
	// windowBytes is what a window may hold of messages as large as the largest so far.
	windowBytes = 16 << 20

	// idle is how long nothing must have come for the broker to be asked whether there is anything left.
	idle = 250 * time.Millisecond
	// stalled is how long a queue that says it has messages may deliver none.
	stalled = 20 * time.Second
)

// walk takes the messages of the queue one after the other, without settling them, and gives back at its end what has not
// been acked. What it holds is unacked in the broker and weighs nothing here: a window can only hold so many, so when one
// is full of messages that stay, its consumer is cancelled and another one takes the next.
//
//	guard   1                          until the end
//	        2 … 9                      a window: full, cancelled, its messages stay unacked
//	              10 … 41              the next one, larger
//	                      42 …  total
//	        └──────── nack, all at once ────────┘ keeps their order
//
// next is for one goroutine; ack is for any.
type walk struct {
	q     *Queue
	s     *broker.Session
	sub   *broker.Subscription
	guard *broker.Consumer

	total   int // ready messages at the start: what comes after them is not looked at
	seen    int

	window  *broker.Consumer
	size    int // of the window
	largest int // body so far, in bytes
	waiting []*broker.Delivery
	buffer  []*broker.Delivery

	mu       sync.Mutex
	first    uint64 // delivery tag of the window's first message; 0 until it came
	taken    int    // by the window, acked or not
	acked    int    // of those
	kept     int    // of those, told to stay
	held     int    // delivered and not acked, by whatever consumer
	guardTag uint64
	drop     bool          // the guard's message is to be acked in the end
	freed    chan struct{} // holds a value when acked has changed
}

// open connects and makes sure to be alone. The walk must be closed.
func (q *Queue) open(ctx context.Context) (*walk, error) {
	s, err := q.dialer.Dial(ctx)
	if err != nil {
		return nil, err
	}
	w := &walk{q: q, s: s, freed: make(chan struct{}, 1)}
	if w.sub, err = s.Subscribe(ctx, q.name, 1); err == nil {
		err = w.claim(ctx)
	}
	if err != nil {
		s.Close() // which gives back what the guard may have taken
		return nil, err
	}
	return w, nil
}

// next returns the next message, which is the caller's until it has told keep or ack. io.EOF after the last one.
func (w *walk) next(ctx context.Context) (*broker.Delivery, error) {
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
			w.met(d)
			return d, nil
		}
		if w.window == nil || w.full() {
			if err := w.roll(ctx); err != nil {
				return nil, err
			}
		}
		came, err := w.receive(ctx, w.window)
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
		if over, err := w.dry(ctx, quiet); over || err != nil {
			return nil, err
		}
	}
}

// fromGuard returns the message that the guard has taken.
func (w *walk) fromGuard(ctx context.Context) (*broker.Delivery, error) {
	for quiet := time.Duration(0); len(w.waiting) == 0; quiet += idle {
		if _, err := w.receive(ctx, w.guard); err != nil {
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
	w.met(d)
	return d, nil
}

// met counts a message that is given out.
func (w *walk) met(d *broker.Delivery) {
	w.seen++
	w.largest = max(w.largest, len(d.Body))
}

// receive waits a moment for messages and puts what came behind waiting.
func (w *walk) receive(ctx context.Context, c *broker.Consumer) (came bool, err error) {
	t := time.NewTimer(idle)
	defer t.Stop()
	select {
	case <-c.Ready():
	case <-w.freed: // the window may have to roll, or more comes
		return true, nil
	case <-w.sub.Done():
		return false, w.q.explain(w.sub.Err())
	case <-w.s.Done():
		return false, w.s.Err()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-t.C:
		return false, nil
	}
	return w.collect(c), nil
}

func (w *walk) collect(c *broker.Consumer) (came bool) {
	w.buffer, _ = c.Take(w.buffer)
	w.mu.Lock()
	w.held += len(w.buffer)
	if c == w.window && len(w.buffer) > 0 {
		if w.first == 0 {
			w.first = w.buffer[0].DeliveryTag
		}
		w.taken += len(w.buffer)
	}
	w.mu.Unlock()
	w.waiting = append(w.waiting, w.buffer...)
	return len(w.buffer) > 0
}

// full reports whether the window cannot take more and something is gained by another one: it is half full of what stays,
// or it is smaller than it may be.
func (w *walk) full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.taken-w.acked >= w.size && (2*w.kept >= w.size || w.size < w.nextSize())
}

// nextSize is the size the next window would have.
func (w *walk) nextSize() int {
	n := firstWindow
	if w.size > 0 {
		n = min(4*w.size, maxWindow)
	}
	if w.largest > 0 {
		n = min(n, max(windowBytes/w.largest, 1))
	}
	return max(min(n, w.total-w.seen), 1)
}

// roll begins the next window. The old consumer goes first, so that the messages come in their order.
func (w *walk) roll(ctx context.Context) error {
	size := w.nextSize()
	if w.window != nil {
		if err := w.window.Stop(ctx); err != nil {
			return err
		}
		w.collect(w.window)
	}
	w.mu.Lock()
	w.first, w.taken, w.acked, w.kept = 0, 0, 0, 0
	w.mu.Unlock()
	var err error
	w.size = size
	if w.window, err = w.sub.Consume(ctx, size); err != nil {
		return w.q.explain(err)
	}
	return nil
}

// dry reports that there is nothing left although fewer have come than there were: somebody else has taken the rest.
func (w *walk) dry(ctx context.Context, quiet time.Duration) (over bool, err error) {
	d, err := w.q.depth(ctx, w.s)
	switch {
	case err != nil:
		return false, err
	case d.Ready == 0:
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
func (w *walk) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.taken-w.acked >= w.size
}

func (w *walk) stalled() error {
	return fmt.Errorf("%w: queue %q delivers nothing although it holds messages", ErrStopped, w.q.name)
}

// keep says that d stays where it is. Its memory is given back.
func (w *walk) keep(d *broker.Delivery) {
	w.mu.Lock()
	if w.first != 0 && d.DeliveryTag >= w.first {
		w.kept++
	}
	w.mu.Unlock()
	d.Free()
}

// ack removes a message from the queue. The guard's goes last: it holds the place of the guard, which would take another
// one out of its order.
func (w *walk) ack(tag uint64) error {
	w.mu.Lock()
	guard := tag == w.guardTag
	if guard {
		w.drop = true
	} else {
		w.held--
	}
	if !guard && w.first != 0 && tag >= w.first {
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

// close gives everything back that has not been acked, in its order, and waits until the broker has it. Nothing may be
// under way any more. On a session that has ended the broker does all of it by itself; the guard's message then comes back
// although it may have been moved.
func (w *walk) close() error {
	defer w.s.Close()
	if w.s.Err() != nil || w.sub.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	for _, c := range []*broker.Consumer{w.window, w.guard} {
		if c == nil {
			continue
		}
		if err := c.Stop(ctx); err != nil {
			return err
		}
		w.collect(c) // what came meanwhile is held too
	}
	if w.drop {
		w.held--
		if err := w.sub.Ack(w.guardTag, false); err != nil {
			return err
		}
	}
	if w.held == 0 {
		return w.sub.RequeueAll(ctx) // for its answer: the acks are with the broker then
	}
	d, err := w.q.depth(ctx, w.s)
	if err != nil {
		return err
	}
	if err := w.sub.RequeueAll(ctx); err != nil {
		return err
	}
	return w.settle(ctx, d.Ready+w.held)
}

// settle waits until the queue counts what was given back: a classic queue answers questions before it does its work, and
// whoever came next would take it for emptier than it is. A queue that drops messages never gets there.
func (w *walk) settle(ctx context.Context, ready int) error {
	for limit := time.Now().Add(farewell / 2); time.Now().Before(limit); {
		d, err := w.q.depth(ctx, w.s)
		if err != nil || d.Ready >= ready {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return nil //nolint:nilerr // time is up, and everything has been given back
		}
	}
	return nil
}
