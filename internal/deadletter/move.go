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

// movers is how many messages are published at once: as many as a Publisher has channels.
const movers = 32

// mover takes what a selection chooses out of the queue: each message is handed to act, and acked when act is done with it.
type mover struct {
	q      *Queue
	w      *walk
	s      Selection
	dry    bool
	rate   float64
	canary *canary // nil: none is sent ahead
	// act makes what has to happen before the message is acked. It runs in the goroutine of run, on the message's memory;
	// what it returns runs beside others and may be nil. ok is false when this message cannot go.
	act func(m *Message) (do func() error, ok bool)
	log *slog.Logger

	todo chan errand
	work sync.WaitGroup

	mu      sync.Mutex
	p       Progress
	failure error         // that would meet the next message too
	failed  chan struct{} // closed with the first one
}

type errand struct {
	d  *broker.Delivery
	do func() error
}

// run goes through the queue. What it returns with an error is what has been done by then.
func (v *mover) run(ctx context.Context, report Report) (Progress, error) {
	v.todo, v.failed = make(chan errand), make(chan struct{})
	v.p.Total = v.w.total
	v.w.empty = v.s.Filter.Empty() && v.s.Limit == 0 && !v.dry
	for range movers {
		v.work.Go(v.errands)
	}
	stop := v.reporting(report)
	err := v.walk(ctx)
	close(v.todo)
	v.work.Wait()
	if cerr := v.w.close(); err == nil && cerr != nil {
		err = fmt.Errorf("give back what stays in queue %q: %w", v.q.name, cerr)
	}
	stop()
	p := v.progress()
	if v.failure != nil {
		err = v.failure
	}
	if err != nil && !errors.Is(err, ErrCanary) && !errors.Is(err, ErrStopped) && !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w: %w", ErrStopped, err)
	}
	return p, err
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
		chosen, do := v.choose(d)
		if !chosen {
			v.w.keep(d)
			continue
		}
		if err := pace.wait(ctx); err != nil {
			v.w.keep(d)
			return err
		}
		select {
		case v.todo <- errand{d, do}:
		case <-v.failed:
			v.w.keep(d)
			return nil
		}
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
func (v *mover) choose(d *broker.Delivery) (chosen bool, do func() error) {
	m := v.q.read(&d.Delivery, v.w.seen)
	matches := v.s.Filter.Match(&m)
	ok := false
	if matches && !m.Foreign && !v.dry {
		do, ok = v.act(&m)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.p.Scanned++
	switch {
	case !matches:
	case m.Foreign:
		v.p.Skipped++
	default:
		v.p.Matched++
		if !v.dry && !ok {
			v.p.Failed++
		}
	}
	return ok, do
}

// errands does what is to be done with one message after the other.
func (v *mover) errands() {
	for e := range v.todo {
		v.finish(e)
	}
}

func (v *mover) finish(e errand) {
	var err error
	if e.do != nil {
		err = e.do()
	}
	if err == nil {
		err = v.w.ack(e.d.DeliveryTag)
		if e.do != nil && err != nil {
			// It has arrived, and the broker brings the original back: the message is in both places now.
			err = fmt.Errorf("message %q is on its way and parked still: %w", e.d.MessageId, err)
		}
		e.d.Free()
	} else {
		v.log.Warn("parked message not moved", "queue", v.q.name, "message_id", e.d.MessageId, "error", err)
		v.w.keep(e.d)
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
func (v *mover) reporting(report Report) (stop func()) { return reporting(report, v.progress) }

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
		act: func(*Message) (func() error, bool) { return nil, true },
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
