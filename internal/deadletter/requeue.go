package deadletter

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"sidecar/internal/broker"
)

// close requeues everything that has not been acked, in order, and waits until the broker has it. Nothing may be under
// way any more. When the session has ended the broker requeues by itself; the guard's message is then requeued although
// it may have been moved.
func (r *reader) close() error {
	defer r.s.Close()
	defer r.free()
	if r.guard == nil || r.s.Err() != nil || r.sub.Err() != nil || r.windows.Err() != nil {
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
	if err := r.flush(); err != nil {
		return err
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

// requeueAll requeues what is held, the guard's message first, then window by window: a quorum queue loses the order if
// several consumers requeue at once, and before RabbitMQ 4.0 that of more than orderedReturn in one nack. It also loses
// the order of more than a number of commands that it has not executed yet, so every few nacks waitRequeued waits for
// it. A classic queue sorts each message into its place, which takes longer the more there are: it gets all at once.
func (r *reader) requeueAll(ctx context.Context) error {
	const patient = 16
	d, err := r.q.depth(ctx, r.s)
	if err != nil {
		return err
	}
	if err := r.sub.RequeueUpTo(ctx, 0); err != nil { // also when nothing is held: the ack is with the broker then
		return err
	}
	limit, ready, requeued := math.MaxInt, d.Ready+r.spans[0].held, 0
	if r.s.Major() < 4 {
		limit = orderedReturn
	}
	for i := range r.spans {
		for _, p := range r.spans[i].pieces(limit) {
			if ready += p.size; r.kept.Known && !r.kept.Quorum {
				continue
			}
			if err := r.windows.RequeueUpTo(ctx, p.last); err != nil {
				return err
			}
			if requeued++; requeued%patient == 0 {
				if err := r.waitRequeued(ctx, ready, false); err != nil {
					return err
				}
			}
		}
	}
	if err := r.windows.RequeueUpTo(ctx, 0); err != nil { // also when nothing is held, as above
		return err
	}
	return r.waitRequeued(ctx, ready, true)
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
	if err := r.sendAcks(); err != nil {
		return err
	}
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
		patience := arriving
		if !r.holds() { // nothing will be requeued behind what the queue takes back by itself
			patience = 0
		}
		came, err := r.receive(ctx, r.window, patience)
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
