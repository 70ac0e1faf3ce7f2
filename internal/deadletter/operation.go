package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"sidecar/internal/broker"
)

// underway bounds the messages that are on their way and not yet acked.
const underway = 1000

// operation takes the selected messages out of the queue: each message is handed to act, and acked when act is done
// with it.
//
//	read ──> choose, act, send ──> todo ──> finish: confirm, ack
//	                in order                  in order
type operation struct {
	pipeline
	q      *Queue
	reader *reader
	s      Selection
	all    bool // also what is another service's
	rate   *rate.Limiter
	canary *canary // nil: none is sent ahead, or all their verdicts are in
	// act begins what has to happen before the message may be acked; end, which may be nil, waits for that. The message
	// stays after an error, which ends the operation unless it is about this message only. Without act messages are only
	// counted.
	act   func(m *Message) (end func() error, err error)
	visit func(*Message) error // reads a message that stays; its error ends the operation
}

// operate returns an operation on the messages of r that s selects.
func (q *Queue) operate(r *reader, s Selection) *operation {
	return &operation{q: q, reader: r, s: s, pipeline: newPipeline(r.ready), rate: rate.NewLimiter(rate.Inf, 1)}
}

// holding is how long messages are held: the broker closes a channel that settles one of them later than its
// consumer_timeout, 30 minutes by default.
const holding = 20 * time.Minute

// errHeld ends an operation before the broker does.
var errHeld = fmt.Errorf("%w: messages have been held for %v, and the broker ends a consumer that holds them for "+
	"longer than consumer_timeout, 30 minutes by default", ErrStopped, holding)

// run reads the queue and closes the reader. The Progress returned with an error is what was done by then.
func (o *operation) run(ctx context.Context, report Report) (Progress, error) {
	stop := o.reporting(report)
	err := o.pass(ctx)
	if cerr := o.reader.close(); err == nil && cerr != nil {
		err = fmt.Errorf("requeue the remaining messages of queue %q: %w", o.q.name, cerr)
	}
	stop()
	if err != nil && o.visit != nil {
		return o.progress(), err
	}
	if err != nil && !errors.Is(err, ErrCanary) && !errors.Is(err, ErrStopped) && !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w: %w", ErrStopped, err)
	}
	return o.progress(), err
}

// pass goes through the queue. Nothing is under way any more when it returns.
func (o *operation) pass(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.q.hold, errHeld)
	defer cancel()
	ctx, stop := withoutDeadline(ctx)
	defer stop()
	return o.inOrder(func() error { return o.handleAll(ctx) })
}

// handleAll handles one message of the queue after the other, up to the limit or the end.
func (o *operation) handleAll(ctx context.Context) error {
	for o.failed.Err() == nil && (o.s.Limit == 0 || o.p.Matched < o.s.Limit) {
		if o.canary != nil && o.p.Canary.Sent >= o.canary.size {
			if err := o.awaitVerdicts(ctx); err != nil {
				return err
			}
		}
		d, err := o.reader.next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read queue %q: %w", o.q.name, err)
		}
		if err := o.handle(ctx, d); err != nil {
			return err
		}
	}
	if o.canary != nil && o.p.Canary.Sent > 0 { // there were fewer than asked for
		return o.awaitVerdicts(ctx)
	}
	return nil
}

// handle judges one message and sends it on its way, or keeps it.
func (o *operation) handle(ctx context.Context, d *broker.Delivery) error {
	m := o.q.parse(d, o.reader.seen)
	chosen := (o.all || !o.q.hides(&m)) && o.s.Filter.Match(&m)
	ours := o.all || o.visit != nil || !m.Foreign
	moves := chosen && ours && o.act != nil
	if moves && o.rate.Wait(ctx) != nil {
		o.reader.keep(d)
		return context.Cause(ctx)
	}
	o.add(func(p *Progress) {
		p.Scanned++
		switch {
		case chosen && ours:
			p.Matched++
		case chosen:
			p.Skipped++
		}
	})
	if !moves {
		return o.stay(d, &m, chosen)
	}
	end, err := (func() error)(nil), m.Unread
	if err == nil {
		end, err = o.act(&m)
	}
	if err != nil {
		o.count(d, err)
		return nil
	}
	o.todo <- func() { o.finish(d, end) }
	return nil
}

// stay keeps a message, after a visit if it was chosen.
func (o *operation) stay(d *broker.Delivery, m *Message, chosen bool) (err error) {
	defer o.reader.keep(d)
	if chosen && o.visit != nil {
		if err = o.visit(m); err == nil {
			o.add(func(p *Progress) { p.Done++ })
		}
	}
	return err
}

// finish waits for one message and acks it.
func (o *operation) finish(d *broker.Delivery, end func() error) {
	var err error
	if end != nil {
		err = end()
	}
	if err == nil {
		if err = o.reader.ack(d.DeliveryTag, len(o.todo) > 0); err != nil && end != nil {
			// It has arrived, and the broker brings the original back: the message is in both places now.
			err = fmt.Errorf("message %q is on its way and parked still: %w", d.MessageId, err)
		}
	}
	o.count(d, err)
}

// count counts the result of a message. One that failed stays.
func (o *operation) count(d *broker.Delivery, err error) {
	if err == nil {
		d.Free()
		o.add(func(p *Progress) { p.Done++ })
		return
	}
	o.q.o.Logger.Warn("parked message not moved", "queue", o.q.name, "message_id", d.MessageId, "error", err)
	lost := o.reader.flush()
	o.reader.keep(d)
	o.add(func(p *Progress) { p.Failed++ })
	if lost != nil || !onlyThisMessage(err) {
		o.fail(errors.Join(err, lost))
	}
}

// pipeline begins something for one message after the other, and finishes it in the same order while others are begun.
type pipeline struct {
	mu     sync.Mutex
	p      Progress
	todo   chan func()
	failed context.Context // ends with the first failure that would meet the next message too
	fail   context.CancelCauseFunc
}

func newPipeline(total int) pipeline {
	failed, fail := context.WithCancelCause(context.Background())
	return pipeline{p: Progress{Total: total}, failed: failed, fail: fail}
}

// inOrder calls begin, and returns when everything in todo is finished. A failure goes before the error of begin.
func (l *pipeline) inOrder(begin func() error) error {
	l.todo = make(chan func(), underway)
	var work sync.WaitGroup
	work.Go(func() {
		for finish := range l.todo {
			finish()
		}
	})
	err := begin()
	close(l.todo)
	work.Wait()
	return cmp.Or(context.Cause(l.failed), err)
}

func (l *pipeline) add(change func(*Progress)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.p)
}

func (l *pipeline) progress() Progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.p
}

const reportEvery = 250 * time.Millisecond

// reporting calls report with the progress, a few times per second and at the end.
func (l *pipeline) reporting(report Report) (stop func()) {
	if report == nil {
		return func() {}
	}
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		tick := time.NewTicker(reportEvery)
		defer tick.Stop()
		for {
			report(l.progress())
			select {
			case <-tick.C:
			case <-done:
				report(l.progress())
				return
			}
		}
	})
	return func() {
		close(done)
		work.Wait()
	}
}

// Discard deletes what d selects. It is otherwise like Redrive.
func (q *Queue) Discard(ctx context.Context, d Discard, report Report) (Progress, error) {
	r, err := q.openRecycled(ctx)
	if err != nil {
		return Progress{}, err
	}
	o := q.operate(r, d.Selection)
	if !d.DryRun {
		o.act = func(*Message) (func() error, error) { return nil, nil }
	}
	return o.run(ctx, report)
}
