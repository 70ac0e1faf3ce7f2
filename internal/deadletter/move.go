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

// mover takes what a selection chooses out of the queue: each message is handed to act, and acked when act is done with it.
//
//	walk ──> choose, act, send ──> todo ──> finish: confirm, ack
//	          in their order                 in their order
type mover struct {
	q      *Queue
	w      *walk
	s      Selection
	all    bool // also what is another service's
	dry    bool
	rate   float64
	canary *canary // nil: none is sent ahead
	// act makes what has to happen before the message is acked; ok is false when this message cannot go. What it returns
	// begins it, and what that returns waits for its end; both may be nil.
	act func(m *Message) (begin func() (end func() error, err error), ok bool)
	log *slog.Logger

	todo chan errand

	mu      sync.Mutex
	p       Progress
	failure error         // that would meet the next message too
	failed  chan struct{} // closed with the first one
}

type errand struct {
	d   *broker.Delivery
	end func() error
}

// run goes through the queue and closes the walk. What it returns with an error is what has been done by then.
func (v *mover) run(ctx context.Context, report Report) (Progress, error) {
	stop := v.reporting(report)
	p, err := v.carry(ctx)
	if cerr := v.w.close(); err == nil && cerr != nil {
		err = fmt.Errorf("give back what stays in queue %q: %w", v.q.name, cerr)
	}
	stop()
	if err != nil && !errors.Is(err, ErrCanary) && !errors.Is(err, ErrStopped) && !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w: %w", ErrStopped, err)
	}
	return p, err
}

// carry goes through the queue. Nothing is under way any more when it returns.
func (v *mover) carry(ctx context.Context) (Progress, error) {
	v.begin()
	var work sync.WaitGroup
	work.Go(v.finishAll)
	err := v.walk(ctx)
	close(v.todo)
	work.Wait()
	if v.failure != nil {
		err = v.failure
	}
	return v.progress(), err
}

func (v *mover) begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.todo != nil {
		return // reporting was first
	}
	v.todo, v.failed = make(chan errand, underway), make(chan struct{})
	v.p.Total = v.w.ready
	v.w.empty = v.s.Filter.Empty() && v.s.Limit == 0 && !v.dry
}

func (v *mover) walk(ctx context.Context) error {
	pace := newPace(v.rate)
	for v.s.Limit == 0 || v.p.Matched < v.s.Limit {
		d, err := v.next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		chosen, begin := v.choose(d)
		if !chosen {
			v.w.keep(d)
			continue
		}
		if err := pace.wait(ctx); err != nil {
			v.w.keep(d)
			return err
		}
		var end func() error
		if begin != nil {
			if end, err = begin(); err != nil {
				v.count(d, err)
				continue
			}
		}
		v.todo <- errand{d, end}
		if v.canary != nil && v.canary.full() {
			if err := v.sing(ctx); err != nil {
				return err
			}
		}
	}
	if v.canary != nil && v.canary.sent > 0 { // there were fewer than asked for
		return v.sing(ctx)
	}
	return nil
}

// next ends with the first failure.
func (v *mover) next(ctx context.Context) (*broker.Delivery, error) {
	select {
	case <-v.failed:
		return nil, io.EOF
	default:
		return v.w.next(ctx)
	}
}

// choose judges one message and counts it.
func (v *mover) choose(d *broker.Delivery) (chosen bool, begin func() (func() error, error)) {
	m := v.q.read(&d.Delivery, v.w.seen)
	matches := v.s.Filter.Match(&m)
	foreign := m.Foreign && !v.all
	ok := false
	if matches && !foreign && !v.dry {
		begin, ok = v.act(&m)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.p.Scanned++
	switch {
	case !matches:
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
func (v *mover) finishAll() {
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

// count writes down what has become of a message. One that did not go stays.
func (v *mover) count(d *broker.Delivery, err error) {
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

func (v *mover) progress() Progress {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.p
	if v.canary != nil {
		p.Canary = v.canary.progress()
	}
	return p
}

// reporting tells report how far it has come, now and then and at the end.
func (v *mover) reporting(report Report) (stop func()) {
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
	unlock, err := q.lock(ctx, false)
	if err != nil {
		return Progress{}, err
	}
	defer unlock()
	w, err := q.fresh(ctx)
	if err != nil {
		return Progress{}, err
	}
	v := mover{
		q: q, w: w, s: s, dry: dry, log: q.o.Logger,
		act: func(*Message) (func() (func() error, error), bool) { return nil, true },
	}
	return v.run(ctx, report)
}

// pace spreads messages over time.
type pace struct {
	every time.Duration // 0: no limit
	next  time.Time
}

func newPace(perSecond float64) *pace {
	p := &pace{next: time.Now()}
	if perSecond > 0 {
		p.every = time.Duration(float64(time.Second) / perSecond)
	}
	return p
}

// wait returns when the next message may go. Time that was lost is not made up for: a limit is a limit.
func (p *pace) wait(ctx context.Context) error {
	if p.every == 0 {
		return nil
	}
	now := time.Now()
	if d := p.next.Sub(now); d > 0 {
		if err := pause(ctx, d); err != nil {
			return err
		}
		now = p.next
	}
	p.next = now.Add(p.every)
	return nil
}
