package deadletter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"sidecar/internal/broker"
)

// underway bounds the messages that are on their way and not yet acked.
const underway = 256

// operation takes the selected messages out of the queue: each message is handed to act, and acked when act is done
// with it.
//
//	read ──> choose, act, send ──> todo ──> finish: confirm, ack
//	                in order                  in order
type operation struct {
	tally
	q      *Queue
	w      *reader
	s      Selection
	all    bool // also what is another service's
	rate   rateLimit
	canary *canary // nil: none is sent ahead, or all their verdicts are in
	// act begins what has to happen before the message may be acked; end, which may be nil, waits for that. The message
	// stays after an error, which ends the operation unless it is alone. Without act messages are only counted.
	act func(m *Message) (end func() error, err error)

	hold   time.Duration // how long messages may be held at a time; 0: until the end
	known  int           // messages at the head of the queue that were read in an earlier pass and stay
	newly  bool          // this pass has read a message for the first time
	todo   chan pending
	failed context.Context // ends with the first failure that would meet the next message too
	fail   context.CancelCauseFunc
}

type pending struct {
	d   *broker.Delivery
	end func() error
}

// operate returns an operation on the messages of w that s selects.
func (q *Queue) operate(w *reader, s Selection) *operation {
	v := &operation{q: q, w: w, s: s, tally: tally{p: Progress{Total: w.ready}}}
	v.failed, v.fail = context.WithCancelCause(context.Background())
	return v
}

// run reads the queue, in as many passes as it takes, and closes the reader. The Progress returned with an error is
// what was done by then.
func (v *operation) run(ctx context.Context, report Report) (Progress, error) {
	v.hold = v.q.hold
	stop := v.reporting(report)
	err := v.pass(ctx)
	for errors.Is(err, errHoldLimit) {
		if err = v.reopen(ctx); err == nil {
			err = v.pass(ctx)
		}
	}
	if cerr := v.putBack(); err == nil {
		err = cerr
	}
	stop()
	if err != nil && !errors.Is(err, ErrCanary) && !errors.Is(err, ErrStopped) && !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w: %w", ErrStopped, err)
	}
	return v.progress(), err
}

// pass goes through the queue once. Nothing is under way any more when it returns.
func (v *operation) pass(ctx context.Context) error {
	v.w.empty = v.s.Filter.Empty() && v.s.Limit == 0 && v.act != nil
	v.todo = make(chan pending, underway)
	var work sync.WaitGroup
	work.Go(v.finishAll)
	err := v.read(ctx)
	close(v.todo)
	work.Wait()
	if failure := context.Cause(v.failed); failure != nil {
		return failure
	}
	return err
}

func (v *operation) read(ctx context.Context) error {
	for v.failed.Err() == nil && (v.s.Limit == 0 || v.p.Matched < v.s.Limit) {
		if v.canary != nil && v.p.Canary.Sent >= v.canary.size {
			if err := v.awaitVerdicts(ctx); err != nil {
				return err
			}
		}
		if v.holdLimitReached() {
			return errHoldLimit
		}
		d, err := v.w.next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := v.handle(ctx, d); err != nil {
			return err
		}
	}
	if v.canary != nil && v.p.Canary.Sent > 0 { // there were fewer than asked for
		return v.awaitVerdicts(ctx)
	}
	return nil
}

// handle judges one message and sends it on its way, or keeps it.
func (v *operation) handle(ctx context.Context, d *broker.Delivery) error {
	if v.known > 0 {
		v.known--
		v.w.keep(d)
		return nil
	}
	m := v.q.read(d, v.w.seen)
	chosen := v.s.Filter.Match(&m)
	ours := v.all || !m.Foreign
	moves := chosen && ours && v.act != nil
	if moves {
		if err := v.rate.wait(ctx); err != nil {
			v.w.keep(d)
			return err
		}
	}
	v.newly = true
	v.add(func(p *Progress) {
		p.Scanned++
		switch {
		case chosen && ours:
			p.Matched++
		case chosen:
			p.Skipped++
		}
	})
	if !moves {
		v.w.keep(d)
		return nil
	}
	end, err := (func() error)(nil), m.Unread
	if err == nil {
		end, err = v.act(&m)
	}
	if err != nil {
		v.count(d, err)
		return nil
	}
	v.todo <- pending{d, end}
	return nil
}

// finishAll waits for one message after the other and acks it.
func (v *operation) finishAll() {
	for e := range v.todo {
		var err error
		if e.end != nil {
			err = e.end()
		}
		if err == nil {
			if err = v.w.ack(e.d.DeliveryTag); err != nil && e.end != nil {
				// It has arrived, and the broker brings the original back: the message is in both places now.
				err = fmt.Errorf("message %q is on its way and parked still: %w", e.d.MessageId, err)
			}
		}
		v.count(e.d, err)
	}
}

// count counts the result of a message. One that failed stays.
func (v *operation) count(d *broker.Delivery, err error) {
	if err == nil {
		d.Free()
		v.add(func(p *Progress) { p.Done++ })
		return
	}
	key := "error"
	if errors.Is(err, errNoRoom) {
		key = "reason"
	}
	v.q.o.Logger.Warn("parked message not moved", "queue", v.q.name, "message_id", d.MessageId, key, err)
	v.w.keep(d)
	v.add(func(p *Progress) { p.Failed++ })
	if !alone(err) {
		v.fail(err)
	}
}

// tally is the progress of an operation, for all its goroutines.
type tally struct {
	mu sync.Mutex
	p  Progress
}

func (t *tally) add(change func(*Progress)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.p)
}

func (t *tally) progress() Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.p
}

const reportEvery = 250 * time.Millisecond

// reporting calls report with the progress, a few times per second and at the end.
func (t *tally) reporting(report Report) (stop func()) {
	if report == nil {
		return func() {}
	}
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		tick := time.NewTicker(reportEvery)
		defer tick.Stop()
		for {
			report(t.progress())
			select {
			case <-tick.C:
			case <-done:
				report(t.progress())
				return
			}
		}
	})
	return func() {
		close(done)
		work.Wait()
	}
}

// Discard deletes what s selects. dry: count, delete nothing. It is otherwise like Redrive.
func (q *Queue) Discard(ctx context.Context, s Selection, dry bool, report Report) (Progress, error) {
	ctx, stop := withoutDeadline(ctx)
	defer stop()
	w, err := q.openRecycled(ctx)
	if err != nil {
		return Progress{}, err
	}
	v := q.operate(w, s)
	if !dry {
		v.act = func(*Message) (func() error, error) { return nil, nil }
	}
	return v.run(ctx, report)
}
