package deadletter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	q      *Queue
	w      *reader
	s      Selection
	all    bool // also what is another service's
	dry    bool
	pace   rateLimit
	canary *canary // nil: none is sent ahead
	// act makes what has to happen before the message is acked; ok is false when this message cannot go. What it returns
	// begins it, and what that returns waits for its end; both may be nil.
	act func(m *Message) (begin func() (end func() error, err error), ok bool)
	log *slog.Logger

	hold  time.Duration // how long messages may be held at a time; 0: until the end
	known int           // messages at the head of the queue that were read in an earlier pass and stay
	newly int           // messages read in this pass for the first time
	todo  chan pending

	mu      sync.Mutex
	p       Progress
	failure error         // that would meet the next message too
	failed  chan struct{} // closed with the first one
}

type pending struct {
	d   *broker.Delivery
	end func() error
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
	v.begin()
	v.w.empty = v.s.Filter.Empty() && v.s.Limit == 0 && !v.dry
	v.todo = make(chan pending, underway)
	var work sync.WaitGroup
	work.Go(v.finishAll)
	err := v.read(ctx)
	close(v.todo)
	work.Wait()
	if v.failure != nil {
		err = v.failure
	}
	return err
}

func (v *operation) begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.failed == nil { // neither a report nor an earlier pass
		v.failed = make(chan struct{})
		v.p.Total = v.w.ready
	}
}

func (v *operation) read(ctx context.Context) error {
	for v.s.Limit == 0 || v.p.Matched < v.s.Limit {
		if v.canary != nil && v.canary.full() {
			if err := v.awaitVerdicts(ctx); err != nil {
				return err
			}
		}
		if v.holdLimitReached(0) {
			return errHoldLimit
		}
		d, err := v.next(ctx)
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
	if v.canary != nil && v.canary.sent > 0 { // there were fewer than asked for
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
	if chosen && !v.dry && (v.all || !m.Foreign) {
		if v.holdLimitReached(v.pace.due()) {
			v.w.keep(d) // it comes again
			return errHoldLimit
		}
		if err := v.pace.wait(ctx); err != nil {
			v.w.keep(d)
			return err
		}
	}
	v.newly++
	if m.Unread != nil && chosen && !v.dry && (v.all || !m.Foreign) {
		v.skip()
		v.count(d, m.Unread)
		return nil
	}
	ok, begin := v.choose(&m, chosen)
	if !ok {
		v.w.keep(d)
		return nil
	}
	var end func() error
	if begin != nil {
		var err error
		if end, err = begin(); err != nil {
			v.count(d, err)
			return nil
		}
	}
	v.todo <- pending{d, end}
	return nil
}

// skip counts a message that cannot be moved.
func (v *operation) skip() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.p.Scanned++
	v.p.Matched++
}

// next ends with the first failure.
func (v *operation) next(ctx context.Context) (*broker.Delivery, error) {
	select {
	case <-v.failed:
		return nil, io.EOF
	default:
		return v.w.next(ctx)
	}
}

// choose counts a message and makes what has to happen to it; ok is false when it stays.
func (v *operation) choose(m *Message, chosen bool) (ok bool, begin func() (func() error, error)) {
	foreign := m.Foreign && !v.all
	if chosen && !foreign && !v.dry {
		begin, ok = v.act(m)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.p.Scanned++
	switch {
	case !chosen:
	case foreign:
		v.p.Skipped++
	default:
		v.p.Matched++
		if !v.dry && !ok {
			v.p.Failed++
		}
	}
	return ok, begin
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
	} else {
		v.log.Warn("parked message not moved", "queue", v.q.name, "message_id", d.MessageId, "error", err)
		v.w.keep(d)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil {
		v.p.Done++
		return
	}
	v.p.Failed++
	if v.failure == nil && !alone(err) {
		v.failure = err
		close(v.failed)
	}
}

func (v *operation) progress() Progress {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.p
	if v.canary != nil {
		p.Canary = v.canary.progress()
	}
	return p
}

// reporting calls report with the progress, a few times per second and at the end.
func (v *operation) reporting(report Report) (stop func()) {
	v.begin()
	return reporting(report, v.progress)
}

const reportEvery = 250 * time.Millisecond

func reporting(report Report, progress func() Progress) (stop func()) {
	if report == nil {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(reportEvery)
		defer t.Stop()
		for {
			report(progress())
			select {
			case <-t.C:
			case <-done:
				report(progress())
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// Discard deletes what s selects. dry: count, delete nothing. It is otherwise like Redrive.
func (q *Queue) Discard(ctx context.Context, s Selection, dry bool, report Report) (Progress, error) {
	ctx, stop := withoutDeadline(ctx)
	defer stop()
	unlock, err := q.lock(ctx, false)
	if err != nil {
		return Progress{}, err
	}
	defer unlock()
	w, err := q.openRecycled(ctx)
	if err != nil {
		return Progress{}, err
	}
	v := operation{
		q: q, w: w, s: s, dry: dry, log: q.o.Logger,
		act: func(*Message) (func() (func() error, error), bool) { return nil, true },
	}
	return v.run(ctx, report)
}
