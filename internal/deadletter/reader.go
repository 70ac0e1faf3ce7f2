package deadletter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/broker"
	"sidecar/internal/message"
)

const (
	firstWindow = 8
	// maxWindow bounds how many messages are on their way to us at once. It bounds memory as well: it is unknown how large
	// the next message is.
	maxWindow = 4000
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
	claim
	ledger

	ready int  // messages at the start: later ones are not read
	total int  // of those, how many to read
	seen  int  // of those, how many have been given out
	exact bool // take no message beyond total: a window ends before the first message of it is given out
	again bool // the last message taken comes from the returned messages of a quorum queue

	windows *broker.Subscription // not the guard's: an ack of everything up to a tag must leave the guard its message
	window  *broker.Consumer     // nil: none takes messages
	largest int                  // body so far, in bytes
	waiting []*broker.Delivery
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
	r := &reader{claim: claim{q: q, s: s}, ledger: ledger{spans: []span{{}}}}
	if r.sub, err = s.Subscribe(ctx, q.name); err == nil {
		if r.windows, err = s.Subscribe(ctx, q.name); err == nil {
			err = r.claimQueue(ctx)
		}
	}
	if err != nil {
		s.Close() // which gives back what the guard may have taken
		r.free()
		return nil, err
	}
	return r, nil
}

// next returns the next message, which is the caller's until it has reported keep or ack. io.EOF after the last one.
func (r *reader) next(ctx context.Context) (*broker.Delivery, error) {
	if r.seen >= r.total {
		return nil, io.EOF
	}
	err := context.Cause(ctx)
	if err == nil && r.seen == 0 {
		err = r.awaitGuard(ctx)
	}
	for err == nil && len(r.waiting) == 0 {
		if r.window == nil || r.full() {
			err = r.nextWindow(ctx)
		}
		if err == nil && r.window != nil {
			err = r.receiveUntil(ctx, r.window, func() bool { return len(r.waiting) > 0 || r.full() })
		}
	}
	if err != nil {
		return nil, err
	}
	return r.pop(), nil
}

// awaitGuard waits for the message that the guard takes, the first of the queue. It is then the next one.
func (r *reader) awaitGuard(ctx context.Context) error {
	return r.receiveUntil(ctx, r.guard, func() bool { return len(r.waiting) > 0 })
}

// pop gives out the first of the messages that wait.
func (r *reader) pop() *broker.Delivery {
	d := r.waiting[0]
	r.waiting = r.waiting[1:]
	r.seen++
	r.largest = max(r.largest, len(d.Body)+int(d.Missing))
	return d
}

// receiveUntil receives messages of c until they are enough. It returns io.EOF when none is left although fewer have
// come than there were: another consumer has taken the rest.
func (r *reader) receiveUntil(ctx context.Context, c *broker.Consumer, enough func() bool) error {
	quiet, empty := time.Duration(0), 0
	for !enough() {
		came, err := r.receive(ctx, c, idle)
		if err != nil {
			return err
		}
		if came {
			quiet, empty = 0, 0
			continue
		}
		if quiet += idle; quiet%(4*idle) != 0 {
			continue
		}
		d, err := r.q.depth(ctx, r.s)
		switch {
		case err != nil:
			return err
		// the guard is one: without any the queue has no leader, and the count is unknown
		case c != r.guard && d.Ready == 0 && d.Consumers > 0:
			// The first answer may overtake messages: it comes over another channel.
			if empty++; empty > 1 {
				return io.EOF
			}
		case quiet > stalled && (c == r.guard || !r.busy()):
			return fmt.Errorf("%w: queue %q delivers nothing although it holds messages", ErrStopped, r.q.name)
		}
	}
	return nil
}

// receive waits a moment for messages and appends them to waiting.
func (r *reader) receive(ctx context.Context, c *broker.Consumer, patience time.Duration) (came bool, err error) {
	select {
	case <-c.Ready():
	case <-r.sub.Done():
		return false, r.q.missing(r.sub.Err())
	case <-r.windows.Done():
		return false, r.q.missing(r.windows.Err())
	case <-r.s.Done():
		return false, r.s.Err()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-time.After(patience):
		return false, nil
	}
	return r.collect(c), nil
}

func (r *reader) collect(c *broker.Consumer) (came bool) {
	taken, _ := c.Take(nil)
	if len(taken) == 0 {
		return false
	}
	r.took(taken, c == r.window)
	r.again = wasReturned(taken[len(taken)-1])
	r.waiting = append(r.waiting, taken...)
	return true
}

// wasReturned reports whether a quorum queue has the message back from a consumer. Classic queues put it in its place
// again.
func wasReturned(d *broker.Delivery) bool {
	d.DecodeHeaders()
	_, counted := amqpvalue.Count(d.Headers[message.HeaderDeliveryCount]) // a text is another consumer's
	_, acquired := d.Headers[message.HeaderAcquiredCount]                 // all that newer brokers count
	return d.Redelivered && (counted || acquired)
}

// requeuesToTail: a quorum queue without a delivery limit puts requeued messages behind everything else: before
// RabbitMQ 4.0 one that names none, since then one that names a negative limit. Only giving back all of it leaves its
// order.
func (r *reader) requeuesToTail() bool {
	return r.kept.Quorum && (r.kept.Limit < 0 || !r.kept.Named && r.s.Major() < 4)
}

// full reports whether the window cannot take more and a new one would help: half of it is messages that stay, or it is
// smaller than it may be.
func (r *reader) full() bool {
	s := r.current()
	return s.held >= s.size && (2*s.staying >= s.size || s.size < r.nextSize(s.size))
}

// nextSize is the size the next window would have, after one of that size.
func (r *reader) nextSize(size int) int {
	return max(1, min(max(firstWindow, 4*size), maxWindow, windowBytes/max(r.largest, 1), r.total-r.seen))
}

// nextWindow begins the next window. The old consumer goes first, so that the messages come in their order.
func (r *reader) nextWindow(ctx context.Context) (err error) {
	if r.window != nil {
		if err := r.endWindow(ctx); err != nil || len(r.waiting) > 0 {
			return err // what the old one still had comes before the next one begins
		}
	}
	size := r.nextSize(r.current().size)
	r.begin(size)
	if r.window, err = r.windows.Consume(ctx, size); err != nil || !r.exact {
		return r.q.missing(err)
	}
	if err = r.receiveUntil(ctx, r.window, r.busy); err != nil && (!errors.Is(err, io.EOF) || len(r.waiting) == 0) {
		return err
	}
	return r.endWindow(ctx)
}

// busy reports whether the window waits for us and not for the broker.
func (r *reader) busy() bool {
	s := r.current()
	return s.held >= s.size
}
