package deadletter

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"sidecar/internal/broker"
)

// span is what one consumer has taken.
type span struct {
	first   uint64   // delivery tag; 0 until something came
	held    int      // taken and not acked
	kept    uint64   // the last that stays; 0: none
	staying int      // how many stay
	stays   []uint64 // all that stay, if the window is too large to requeue them at once
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

// last is the span of the window. It is called with mu.
func (w *reader) last() *span { return &w.spans[len(w.spans)-1] }

// keep says that d stays where it is. Its memory is given back.
func (w *reader) keep(d *broker.Delivery) {
	tag := d.DeliveryTag
	d.Free()
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.of(tag)
	s.staying++
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
	w.of(tag).held--
	guard := tag == w.spans[0].first
	w.mu.Unlock()
	if guard {
		return nil
	}
	return w.sub.Ack(tag, false)
}

// close requeues everything that has not been acked, in order, and waits until the broker has it. Nothing may be under
// way any more. When the session has ended the broker requeues by itself; the guard's message is then requeued although
// it may have been moved.
func (w *reader) close() error {
	defer w.s.Close()
	defer w.free()
	if w.guard == nil || w.s.Err() != nil || w.sub.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout+time.Duration(w.ready)*closeTimePerMessage)
	defer cancel()
	if err := w.restore(ctx); err != nil {
		return err
	}
	if err := w.guard.Stop(ctx); err != nil {
		return err
	}
	w.collect(w.guard)
	if g := w.spans[0]; g.first != 0 && g.held == 0 {
		if err := w.sub.Ack(g.first, false); err != nil {
			return err
		}
	}
	if err := w.requeueAll(ctx); err != nil {
		return err
	}
	return w.release(ctx)
}

// free releases the memory of messages that were received and not returned by next.
func (w *reader) free() {
	for _, d := range w.waiting {
		d.Free()
	}
	w.waiting = nil
	for _, c := range []*broker.Consumer{w.guard, w.window} {
		if c != nil {
			c.Drop()
		}
	}
}

// requeueAll requeues what is held, window by window: a quorum queue loses the order when several consumers requeue at
// once. It also loses the order of more than a number of commands that it has not executed yet, so every few windows
// waitRequeued waits for it. A classic queue sorts each message into its place, which takes longer the more there are:
// it gets all at once.
func (w *reader) requeueAll(ctx context.Context) error {
	const patient = 16
	d, err := w.q.depth(ctx, w.s)
	if err != nil {
		return err
	}
	held := 0
	var parts []part
	for i := range w.spans {
		held += w.spans[i].held
		if !w.kept.Known || w.kept.Quorum {
			parts = append(parts, w.spans[i].parts(i == len(w.spans)-1)...)
		}
	}
	ready := d.Ready
	for i, part := range parts {
		if err := w.sub.RequeueUpTo(ctx, part.last); err != nil {
			return err
		}
		if ready += part.held; (i+1)%patient == 0 {
			if err := w.waitRequeued(ctx, ready, false); err != nil {
				return err
			}
		}
	}
	if err := w.sub.RequeueUpTo(ctx, 0); err != nil { // also when nothing is held: the acks are with the broker then
		return err
	}
	return w.waitRequeued(ctx, d.Ready+held, true)
}

// part is what is requeued at once.
type part struct {
	last uint64 // delivery tag
	held int
}

// parts divides the messages that stay of a window; the rest of the last window is requeued with everything else.
func (s *span) parts(last bool) (parts []part) {
	if s.kept == 0 {
		return nil
	}
	slices.Sort(s.stays)
	rest := s.held
	for stays := s.stays; len(stays) > orderedWindow; stays = stays[orderedWindow:] {
		parts = append(parts, part{stays[orderedWindow-1], orderedWindow})
		rest -= orderedWindow
	}
	if !last {
		parts = append(parts, part{s.kept, rest})
	}
	return parts
}

// restore ends the window. Before that it takes the rest of the returned messages of a quorum queue, so that giving
// back all of it leaves its order.
func (w *reader) restore(ctx context.Context) error {
	w.total, w.empty = w.ready, false
	if w.seen == 0 && w.ready > 0 { // it may be the first of the returned messages
		if err := w.awaitGuard(ctx); err != nil {
			return err
		}
	}
	for {
		for len(w.waiting) > 0 {
			w.keep(w.pop())
		}
		if w.window != nil {
			if err := w.endWindow(ctx); err != nil {
				return err
			}
		}
		if len(w.waiting) > 0 {
			continue
		}
		if w.exact || w.seen == 0 || !w.again && !w.requeuesToTail() {
			return nil
		}
		d, err := w.next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		w.keep(d)
	}
}

// endWindow cancels the window's consumer once nothing is on its way to it any more: what a quorum queue has assigned
// to a consumer that is cancelled before it gets it, it takes back by itself. It counts that against the delivery
// limit, and puts it before everything that is requeued afterwards. What the window still had waits then.
func (w *reader) endWindow(ctx context.Context) error {
	w.acks.Lock()
	defer w.acks.Unlock()
	if err := w.waitQuiet(ctx); err != nil {
		return err
	}
	if err := w.window.Stop(ctx); err != nil {
		return err
	}
	w.collect(w.window)
	w.window = nil
	return nil
}

// waitQuiet waits until nothing is on its way to the window. Every ack brings another message, so something is until
// the window is full again, or the queue is empty.
func (w *reader) waitQuiet(ctx context.Context) error {
	const (
		arriving = 50 * time.Millisecond // for messages that the queue has already sent
		giveUp   = 5 * time.Second
	)
	if w.exact || w.kept.Known && !w.kept.Quorum {
		return nil
	}
	limit, empty := time.Now().Add(giveUp), false
	for !w.busy() && time.Now().Before(limit) {
		came, err := w.receive(ctx, w.window, arriving)
		if err != nil || empty && !came {
			return err
		}
		d, err := w.q.depth(ctx, w.s)
		if err != nil {
			return err
		}
		empty = d.Ready == 0
	}
	return nil
}

// waitRequeued waits until the queue counts the requeued messages: a classic queue answers a passive declare before it
// has requeued, and the next operation would see too few messages. A queue that drops messages never gets there.
// untilNoConsumer also waits until the queue counts no consumer: a quorum queue counts a cancelled one until its last
// ack is on disk, and the next operation would see it as another consumer.
func (w *reader) waitRequeued(ctx context.Context, ready int, untilNoConsumer bool) error {
	began := time.Now()
	for limit := began.Add(closeTimeout/2 + time.Duration(w.ready)*closeTimePerMessage/2); time.Now().Before(limit); {
		d, err := w.q.depth(ctx, w.s)
		if err != nil || d.Ready >= ready && (!untilNoConsumer || d.Consumers == 0 || time.Since(began) > consumerLeaves) {
			return err
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return nil //nolint:nilerr // time is up, and everything has been requeued
		}
	}
	return nil
}
