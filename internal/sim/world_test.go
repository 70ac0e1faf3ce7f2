package sim

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/consume"
	"sidecar/internal/sim/model"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// Phases of a run, in virtual time: faults may begin for safety, then everything is healed and has liveness to come to
// rest.
const (
	safety   = 40 * time.Second
	liveness = 30 * time.Minute
)

// world is one run: the real sidecar between a model of the broker and a model of the app.
//
// A seed decides what is sent, what the app does and which fault happens at which frame. It does not decide which of
// two goroutines that are both ready runs first, nor the sidecar's own jitter: a run is nearly, not exactly, the same
// each time.
type world struct {
	*settings
	bug     bug
	used    *topology.Plan // settings.plan, unless the bug is in it
	tamper  func([]byte) []byte
	log     *slog.Logger
	broker  *model.Broker
	app     *app
	ledger  *ledger
	healed  atomic.Bool
	process chan struct{} // held by who stops or starts a process; no lock, for time must pass meanwhile
	sidecar *sidecar

	mu      sync.Mutex
	counts  map[string]*count
	waiting []*fault // for a frame

	dlq   sync.Mutex
	saved *model.Saved // the deleted dead-letter queue
}

// count is what a connection, over all its sessions, has asked for.
type count struct{ steps, publishes int }

// bug is what a test breaks deliberately.
type bug struct {
	dispatcher func(consume.Dispatcher) consume.Dispatcher
	batches    func(consume.BatchDispatcher) consume.BatchDispatcher
	publisher  func(consume.Publisher) consume.Publisher
	tamper     func() func(frame []byte) []byte // in each run, every frame to the broker; nil drops it
	plan       func(*topology.Plan)             // a copy, which the sidecar and the operator use
}

// run plays a seed and returns what was seen. It has to be called in a bubble of virtual time.
func run(s *settings, b bug, log *slog.Logger) *ledger {
	w := &world{settings: s, bug: b, used: s.plan, log: log, ledger: newLedger(), counts: map[string]*count{consuming: {}, publishing: {}}, process: make(chan struct{}, 1)}
	if b.tamper != nil {
		w.tamper = b.tamper()
	}
	if b.plan != nil {
		broken := *s.plan
		broken.Queues, broken.Waits = slices.Clone(s.plan.Queues), slices.Clone(s.plan.Waits)
		b.plan(&broken)
		w.used = &broken
	}
	w.app = newApp(w.ledger, s.messages, func(id string) bool { return w.broker.Held(w.plan.Queue, id) })
	w.broker = model.New(model.Options{Version: s.version, Seed: s.seed, Latency: s.latency, Confirm: s.confirm, Hook: w.hook})
	if s.mode != topology.ModeDeclare {
		w.declare()
	}
	var others sync.WaitGroup
	for _, f := range s.faults {
		if f.timed() {
			others.Go(func() { w.await(f) })
		} else {
			w.waiting = append(w.waiting, f)
		}
	}
	w.process <- struct{}{}
	w.sidecar = w.startSidecar()
	<-w.process
	others.Go(w.send)
	time.Sleep(safety)
	w.heal()
	others.Wait()
	w.rest()
	w.sidecar.stop(2 * time.Minute)
	w.ledger.park(w.broker.Take(w.plan.Park.Queue))
	w.ledger.dropped = w.broker.Dropped()
	w.broker.Stop() // a half-open connection may still be there
	return w.ledger
}

// declare is what an operator does where the sidecar may not.
func (w *world) declare() {
	d := broker.NewDialer(broker.Options{
		URLs: func() ([]string, error) { return []string{"amqp://model/"}, nil }, Name: "operator",
		Connect: func(ctx context.Context, _ string) (net.Conn, error) { return w.broker.Dial(ctx, "operator") },
	})
	session, err := d.Dial(context.Background())
	if err != nil {
		panic(err)
	}
	defer session.Close()
	if report, err := declare.Ensure(context.Background(), session, w.used, topology.ModeDeclare); err != nil || len(report.Findings) > 0 {
		panic(report.Findings)
	}
}

// send publishes every message when its time comes, and again until it is routed, as a publisher that waits for
// confirms.
func (w *world) send() {
	exchange, key := front(w.plan)
	parcels := slices.SortedStableFunc(slices.Values(w.messages), func(x, y *parcel) int { return int(x.after - y.after) })
	start := time.Now()
	for _, p := range parcels {
		time.Sleep(p.after - time.Since(start))
		props := model.Properties{MessageID: p.id, DeliveryMode: 2, Headers: model.Table{"mine": p.id}, ContentType: "text/plain"}
		w.ledger.publish(p.id)
		for !w.broker.Publish(exchange, key, props, p.body) {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// front is where producers publish: the first binding of the service's queue.
func front(p *topology.Plan) (exchange, key string) {
	for _, b := range p.Bindings {
		if b.Queue == p.Queue {
			switch b.Key {
			case "orders.*", "order.*", "order.#":
				return b.Exchange, b.Key[:len(b.Key)-1] + "created"
			}
			return b.Exchange, b.Key
		}
	}
	return "", p.Queue
}

// heal ends all faults.
func (w *world) heal() {
	w.healed.Store(true)
	w.broker.Start()
	w.broker.Alarm(false)
	w.restoreDLQ()
	w.app.start()
	w.log.Info("healed")
}

func (w *world) unlessHealed(do func()) {
	if !w.healed.Load() {
		do()
	}
}

// rest waits until nothing moves any more.
func (w *world) rest() {
	queues := []string{w.plan.Queue}
	for _, q := range w.plan.Queues {
		if q.Kind == topology.KindRetry {
			queues = append(queues, q.Name)
		}
	}
	for end := time.Now().Add(liveness); time.Now().Before(end); time.Sleep(time.Second) {
		if w.broker.Idle(queues...) {
			w.ledger.idle = true
			return
		}
	}
}

// deleteDLQ deletes the dead-letter queue; what it held has been seen.
func (w *world) deleteDLQ() {
	w.dlq.Lock()
	defer w.dlq.Unlock()
	if w.saved != nil || w.healed.Load() {
		return
	}
	held, saved := w.broker.Delete(w.plan.Park.Queue)
	w.saved = &saved
	w.ledger.park(held)
}

func (w *world) restoreDLQ() {
	w.dlq.Lock()
	defer w.dlq.Unlock()
	if w.saved != nil {
		w.broker.Restore(*w.saved)
		w.saved = nil
	}
}
