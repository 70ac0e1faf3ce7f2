package declare

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// Depth is how many messages are ready in a queue. Main is the queue that is consumed by the same plan.
type Depth struct {
	Queue string        `json:"queue"`
	Main  string        `json:"-"`
	Kind  topology.Kind `json:"kind"`
	Ready int           `json:"ready"`
}

// DefaultEvery is how often a Watcher checks, how often a topology with findings is checked again, and how often a
// declared topology is declared again.
const DefaultEvery = 15 * time.Second

// WatchOptions says how to watch.
type WatchOptions struct {
	Every  time.Duration   // DefaultEvery when zero
	Ask    <-chan struct{} // asks for a check between two others; may be nil
	Depths *Depths         // shows what the watcher measures

	Sightings *Sightings // records what the watcher finds; may be nil

	// Registered returns the consumer of the plan's queue that this process has registered with the broker; nil: none. May
	// be nil.
	Registered func() Consumer

	// Report is called after every check with the missing objects, also when there are none. It must not block. While an
	// object is missing a rejected message would be lost without a trace, so consumption has to pause.
	Report func([]Finding)
}

// Consumer is one that this process has registered. Lost is called when the broker does not have it any more.
type Consumer interface{ Lost() }

// Watcher measures the queues of a plan and notices when a part of it is deleted under the running sidecar. There is
// one for each subscription; it watches one session at a time.
type Watcher struct {
	o    WatchOptions
	last atomic.Pointer[[]Depth]
}

// NewWatcher returns a watcher that does not check yet.
func NewWatcher(o WatchOptions) *Watcher {
	o.Every = cmp.Or(o.Every, DefaultEvery)
	w := &Watcher{o: o}
	o.Depths.add(w)
	return w
}

// depths are the last ones measured, in the plan's order; nil while Watch does not run. They must not be changed.
func (w *Watcher) depths() []Depth {
	if last := w.last.Load(); last != nil {
		return *last
	}
	return nil
}

// Watch checks the objects of the plan at once and then periodically, on a channel of its own, until ctx ends or the
// session fails. It returns the session's error, or nil when ctx ended. The measured depths are removed then: old
// numbers would look current.
func (w *Watcher) Watch(ctx context.Context, s Session, plan func() *topology.Plan) error {
	e := newEnsurer(s, plan(), topology.ModeVerify)
	defer e.close(context.WithoutCancel(ctx))
	defer w.last.Store(nil)
	t := time.NewTicker(w.o.Every)
	defer t.Stop()
	var u unconsumed
	for {
		e.plan = plan()
		begun, consumer := time.Now(), w.registered()
		depths, findings, err := e.measure(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		w.last.Store(&depths)
		if w.o.Sightings != nil {
			w.o.Sightings.measured(depths, begun)
		}
		w.o.Report(findings)
		var missing Consumer
		if e.unconsumed && consumer == w.registered() { // the same before and behind the check
			missing = consumer
		}
		u.see(missing, begun, w.o.Every/2)
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		case <-w.o.Ask:
		}
	}
}

func (w *Watcher) registered() Consumer {
	if w.o.Registered == nil {
		return nil
	}
	return w.o.Registered()
}

// unconsumed is a consumer of this process that the broker did not have in a check. RabbitMQ 3.10 sends no basic.cancel
// for some queues that are deleted and declared again at once.
type unconsumed struct {
	consumer Consumer // nil: none
	since    time.Time
}

// see takes what a check that began at that time has found: the consumer that the broker does not have, or nil. One
// check alone may be wrong, and checks on request come right behind one another, so the consumer is lost when another
// one, at least gap later, finds the same. Each later check says it again: Lost must do no harm twice.
func (u *unconsumed) see(consumer Consumer, begun time.Time, gap time.Duration) {
	if consumer == nil || consumer != u.consumer {
		*u = unconsumed{consumer, begun}
	} else if begun.Sub(u.since) >= gap {
		consumer.Lost()
	}
}

// measure returns the number of ready messages in every queue of the plan, and the missing objects that a retried or
// parked message passes through; Ensure has checked the rest. A queue that the user may not read (from RabbitMQ 4.3)
// has no depth and is not a finding. An error is a failure of the session.
func (e *ensurer) measure(ctx context.Context) (depths []Depth, missing []Finding, err error) {
	e.findings, e.unconsumed = nil, false
	if _, old := TooOld(e.s, e.plan); old {
		return nil, nil, nil // Ensure reports that, and declares nothing
	}
	for _, o := range objects(e.plan) {
		refusal := e.ask(ctx, lookFor+o.title, o.passive)
		switch {
		case refusal != nil && absent(refusal):
			e.findings = append(e.findings, o.absent())
		case refusal != nil && refusal.Code == amqp.NotFound:
			e.refused(o.title, "a durable "+o.kind, refusal)
		case refusal == nil && e.err == nil && o.queue != nil:
			depths = append(depths, Depth{Queue: o.name, Main: e.plan.Queue, Kind: o.queue.Kind, Ready: o.counts.Messages})
			e.unconsumed = e.unconsumed || o.name == e.plan.Queue && o.counts.Messages > 0 && o.counts.Consumers == 0
		}
	}
	return depths, e.findings, e.err
}
