package deadletter

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"sidecar/internal/broker"
)

// span is what one consumer has taken.
type span struct {
	size    int    // how many it may hold
	first   uint64 // delivery tag; 0 until something came
	held    int    // taken and not acked
	kept    uint64 // the last that stays; 0: none
	staying int    // how many stay
}

// ledger is what a reader holds.
type ledger struct {
	acks  sync.Mutex // held while acks are sent, and while a window ends
	mu    sync.Mutex
	spans []span // of all windows so far, the guard's first
}

// of finds the span of a delivery: one of the last.
func (l *ledger) of(tag uint64) *span {
	for i := len(l.spans) - 1; i > 0; i-- {
		if s := &l.spans[i]; s.first != 0 && tag >= s.first {
			return s
		}
	}
	return &l.spans[0]
}

// current returns the span of the window as it is now.
func (l *ledger) current() span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spans[len(l.spans)-1]
}

// begin begins the span of another window.
func (l *ledger) begin(size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spans = append(l.spans, span{size: size})
}

// took counts messages that the window, or else the guard, has taken.
func (l *ledger) took(taken []*broker.Delivery, window bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.spans[0]
	if window {
		s = &l.spans[len(l.spans)-1]
	}
	if s.held += len(taken); s.first == 0 {
		s.first = taken[0].DeliveryTag
	}
}

// keep says that d stays where it is. Its memory is given back.
func (l *ledger) keep(d *broker.Delivery) {
	tag := d.DeliveryTag
	d.Free()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.of(tag)
	s.staying++
	s.kept = max(s.kept, tag)
}

// ack removes a message from the queue. The guard's goes last: it holds the place of the guard, which would take
// another one out of its order.
func (r *reader) ack(tag uint64) error {
	r.acks.Lock()
	defer r.acks.Unlock()
	r.mu.Lock()
	r.of(tag).held--
	guard := tag == r.spans[0].first
	r.mu.Unlock()
	if guard {
		return nil
	}
	return r.sub.Ack(tag, false)
}

// close requeues everything that has not been acked, in order, and waits until the broker has it. Nothing may be under
// way any more. When the session has ended the broker requeues by itself; the guard's message is then requeued although
// it may have been moved.
func (r *reader) close() error {
	defer r.s.Close()
	defer r.free()
	if r.guard == nil || r.s.Err() != nil || r.sub.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout+time.Duration(r.ready)*closeTimePerMessage)
	defer cancel()
	if err := r.restore(ctx); err != nil {
		return err
	}
	if err := r.guard.Stop(ctx); err != nil {
		return err
	}
	r.collect(r.guard)
	if g := r.spans[0]; g.first != 0 && g.held == 0 {
		if err := r.sub.Ack(g.first, false); err != nil {
			return err
		}
	}
	if err := r.requeueAll(ctx); err != nil {
		return err
	}
	return r.release(ctx)
}

// free releases the memory of messages that were received and not returned by next.
func (r *reader) free() {
	for _, d := range r.waiting {
		d.Free()
	}
	r.waiting = nil
	for _, c := range []*broker.Consumer{r.guard, r.window} {
		if c != nil {
			c.Drop()
		}
	}
}

// requeueAll requeues what is held, window by window: a quorum queue loses the order when several consumers requeue at
// once. It also loses the order of more than a number of commands that it has not executed yet, so every few windows
// waitRequeued waits for it. A classic queue sorts each message into its place, which takes longer the more there are:
// it gets all at once.
func (r *reader) requeueAll(ctx context.Context) error {
	const patient = 16
	d, err := r.q.depth(ctx, r.s)
	if err != nil {
		return err
	}
	held, requeued := 0, 0
	for i, s := range r.spans {
		held += s.held
		if s.kept == 0 || i == len(r.spans)-1 || r.kept.Known && !r.kept.Quorum {
			continue
		}
		if err := r.sub.RequeueUpTo(ctx, s.kept); err != nil {
			return err
		}
		if requeued++; requeued%patient == 0 {
			if err := r.waitRequeued(ctx, d.Ready+held, false); err != nil {
				return err
			}
		}
	}
	if err := r.sub.RequeueUpTo(ctx, 0); err != nil { // also when nothing is held: the acks are with the broker then
		return err
	}
	return r.waitRequeued(ctx, d.Ready+held, true)
}

// restore ends the window. Before that it takes the rest of the returned messages of a quorum queue, so that giving
// back all of it leaves its order.
func (r *reader) restore(ctx context.Context) error {
	r.total = r.ready
	if r.seen == 0 && r.ready > 0 { // it may be the first of the returned messages
		if err := r.awaitGuard(ctx); err != nil {
			return err
		}
	}
	for {
		for len(r.waiting) > 0 {
			r.keep(r.pop())
		}
		if r.window != nil {
			if err := r.endWindow(ctx); err != nil {
				return err
			}
		}
		if len(r.waiting) > 0 {
			continue
		}
		if r.exact || r.seen == 0 || !r.again && !r.requeuesToTail() {
			return nil
		}
		d, err := r.next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		r.keep(d)
	}
}

// endWindow cancels the window's consumer once nothing is on its way to it any more: what a quorum queue has assigned
// to a consumer that is cancelled before it gets it, it takes back by itself. It counts that against the delivery
// limit, and puts it before everything that is requeued afterwards. What the window still had waits then.
func (r *reader) endWindow(ctx context.Context) error {
	r.acks.Lock()
	defer r.acks.Unlock()
	if err := r.waitQuiet(ctx); err != nil {
		return err
	}
	if err := r.window.Stop(ctx); err != nil {
		return err
	}
	r.collect(r.window)
	r.window = nil
	return nil
}

// waitQuiet waits until nothing is on its way to the window. Every ack brings another message, so something is until
// the window is full again, or the queue is empty.
func (r *reader) waitQuiet(ctx context.Context) error {
	const (
		arriving = 50 * time.Millisecond // for messages that the queue has already sent
		giveUp   = 10 * time.Second      // without a message
	)
	if r.exact || r.kept.Known && !r.kept.Quorum {
		return nil
	}
	for last, empty := time.Now(), false; !r.busy() && time.Since(last) < giveUp; {
		came, err := r.receive(ctx, r.window, arriving)
		if err != nil || empty && !came {
			return err
		}
		if came {
			last = time.Now()
		}
		d, err := r.q.depth(ctx, r.s)
		if err != nil {
			return err
		}
		empty = d.Ready == 0 && d.Consumers > 0 // the window is a consumer: without one the queue has not answered
	}
	return nil
}

// waitRequeued waits until the queue counts the requeued messages: a classic queue answers a passive declare before it
// has requeued, and the next operation would see too few messages. A queue that drops messages never gets there.
// untilNoConsumer also waits until the queue counts no consumer: a quorum queue counts a cancelled one until its last
// ack is on disk, and the next operation would see it as another consumer.
func (r *reader) waitRequeued(ctx context.Context, ready int, untilNoConsumer bool) error {
	began := time.Now()
	for limit := began.Add(closeTimeout/2 + time.Duration(r.ready)*closeTimePerMessage/2); time.Now().Before(limit); {
		d, err := r.q.depth(ctx, r.s)
		if err != nil || d.Ready >= ready && (!untilNoConsumer || d.Consumers == 0 || time.Since(began) > consumerLeaves) {
			return err
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return nil //nolint:nilerr // time is up, and everything has been requeued
		}
	}
	return nil
}
