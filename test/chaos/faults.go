package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/proxy"
	"sidecar/test/chaos/judge"
)

// fault is a kind of trouble.
type fault struct {
	kind     string
	class    string // see package judge
	weight   int
	duration time.Duration // 0: it is over at once
	alone    bool          // it must not overlap with another one
	do       func(ctx context.Context, r *rig, d time.Duration) error
}

// faults are all kinds, in an order that never changes: a schedule names them by number.
var faults = []fault{
	{"cut", judge.ClassSidecar, 20, 0, false, func(_ context.Context, r *rig, _ time.Duration) error {
		r.cut()
		return nil
	}},
	{"half-open", judge.ClassSidecar, 5, 40 * time.Second, true, halfOpen},
	{"latency", judge.ClassSidecar, 5, 5 * time.Second, true,
		shaped(proxy.Shape{Latency: 100 * time.Millisecond, Jitter: 200 * time.Millisecond})},
	{"bandwidth", judge.ClassSidecar, 5, 5 * time.Second, true, shaped(proxy.Shape{Rate: 64 << 10})},
	{"slices", judge.ClassSidecar, 5, 5 * time.Second, true, shaped(proxy.Shape{Slice: 7})},
	{"sidecar-kill", judge.ClassSidecar, 20, 0, false, again(func(r *rig) *process { return r.sidecar }, syscall.SIGKILL)},
	{judge.SidecarEnded, judge.ClassNone, 15, 0, false, again(func(r *rig) *process { return r.sidecar },
		syscall.SIGTERM)},
	{"sidecar-hurry", judge.ClassSidecar, 5, 0, false, hurried},
	{judge.SidecarStopped, judge.ClassSidecar, 5, 8 * time.Second, true,
		frozen(func(r *rig) *process { return r.sidecar })},
	{"app-kill", judge.ClassApp, 15, 0, false, again(func(r *rig) *process { return r.app }, syscall.SIGKILL)},
	{"app-term", judge.ClassApp, 5, 0, false, again(func(r *rig) *process { return r.app }, syscall.SIGTERM)},
	{judge.AppStopped, judge.ClassApp, 5, 5 * time.Second, true, frozen(func(r *rig) *process { return r.app })},
	{"app-closed", judge.ClassApp, 5, 8 * time.Second, true, closed},
	{"broker-stop", judge.ClassBroker, 8, 2 * time.Second, true, stopped},
	{"broker-kill", judge.ClassBroker, 8, 0, true, killed},
	{"broker-freeze", judge.ClassSidecar, 4, 12 * time.Second, true, brokerFrozen},
	{"memory-alarm", judge.ClassPublish, 5, 5 * time.Second, true, alarm},
	{"close-consumer", judge.ClassSidecar, 3, 0, false, connection("consume")},
	{"close-publisher", judge.ClassPublish, 3, 0, false, connection("publish")},
	{"password", judge.ClassSidecar, 3, 2 * time.Second, true, rotated},
	{"dlq-delete", judge.ClassPublish, 3, 0, true, deleted},
	{"node-kill", judge.ClassBroker, 8, 0, true, nodeKilled},
	{"partition", judge.ClassBroker, 5, 20 * time.Second, true, partitioned},
	{"redrive", judge.ClassNone, 5, 0, false, func(ctx context.Context, r *rig, _ time.Duration) error {
		return r.redrive(ctx)
	}},
	{"postgres-kill", judge.ClassData, 6, 0, true, ended("kill")},
	{"postgres-immediate", judge.ClassData, 6, 0, true, ended("immediate")},
	{"postgres-freeze", judge.ClassData, 4, 6 * time.Second, true, databaseFrozen},
	{"outbox-terminate", judge.ClassData, 4, 0, false, terminated},
	{"close-outbox", judge.ClassPublish, 3, 0, false, connection("outbox")},
	{"relay-kill", judge.ClassData, 6, 0, false, relay(syscall.SIGKILL)},
	{"relay-term", judge.ClassNone, 4, 0, false, relay(syscall.SIGTERM)},
	{freezeReturns, judge.ClassSidecar, 4, 8 * time.Second, true, returnsFrozen},
	{"cut-behind", judge.ClassPublish, 4, 3 * time.Second, true, cutBehind},
}

// Kinds that only a cluster has, and that only a single node has.
var (
	clustered = []string{"node-kill", "partition"}
	single    = []string{"broker-stop", "broker-kill", "broker-freeze", freezeReturns}
)

// rest waits; a fault that is interrupted ends early.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func shaped(s proxy.Shape) func(context.Context, *rig, time.Duration) error {
	return func(ctx context.Context, r *rig, d time.Duration) error {
		r.shape(s)
		rest(ctx, d)
		r.shape(proxy.Shape{})
		return nil
	}
}

func again(which func(*rig) *process, s syscall.Signal) func(context.Context, *rig, time.Duration) error {
	return func(ctx context.Context, r *rig, _ time.Duration) error {
		p := which(r)
		if s == syscall.SIGTERM {
			p.politely.Lock()
			defer p.politely.Unlock()
		}
		if p == r.sidecar {
			r.fill(ctx)
		}
		pid := p.pid()
		if err := p.signal(s); err != nil {
			return err
		}
		return p.again(ctx, pid)
	}
}

// hurried asks twice: what is in flight is interrupted.
func hurried(ctx context.Context, r *rig, _ time.Duration) error {
	p := r.sidecar
	p.politely.Lock()
	defer p.politely.Unlock()
	r.fill(ctx)
	pid := p.pid()
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	rest(ctx, 50*time.Millisecond)
	if p.pid() == pid {
		_ = p.signal(syscall.SIGTERM) // it may just have ended
	}
	return p.again(ctx, pid)
}

func frozen(which func(*rig) *process) func(context.Context, *rig, time.Duration) error {
	return func(ctx context.Context, r *rig, d time.Duration) error {
		if err := which(r).signal(syscall.SIGSTOP); err != nil {
			return err
		}
		rest(ctx, d)
		return which(r).signal(syscall.SIGCONT)
	}
}

func closed(ctx context.Context, r *rig, d time.Duration) error {
	if err := r.app.signal(syscall.SIGUSR1); err != nil {
		return err
	}
	rest(ctx, d)
	return r.app.signal(syscall.SIGUSR2)
}

func stopped(ctx context.Context, r *rig, d time.Duration) error {
	if err := r.node.ctl("stop_app"); err != nil {
		return err
	}
	rest(ctx, d)
	return r.node.ctl("start_app")
}

func killed(_ context.Context, r *rig, _ time.Duration) error {
	return errors.Join(r.node.kill(), r.node.start())
}

func brokerFrozen(ctx context.Context, r *rig, d time.Duration) error {
	if err := r.node.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	rest(ctx, d)
	return r.node.signal(syscall.SIGCONT)
}

func alarm(ctx context.Context, r *rig, d time.Duration) error {
	if err := r.node.ctl("set_vm_memory_high_watermark", "0.0000001"); err != nil {
		return err
	}
	rest(ctx, d)
	return r.node.ctl("set_vm_memory_high_watermark", "0.6")
}

func connection(kind string) func(context.Context, *rig, time.Duration) error {
	return func(ctx context.Context, r *rig, _ time.Duration) error {
		var err error
		// It may be away because of the fault before.
		werr := until(ctx, 20*time.Second, "a connection to close",
			func() bool { err = r.node.closeConnections(kind); return err == nil })
		if werr != nil {
			return err
		}
		return nil
	}
}

// rotated changes the password at the broker first, so that for a while the sidecar has the wrong one.
func rotated(ctx context.Context, r *rig, d time.Duration) error {
	next := r.nextPassword()
	if err := r.node.ctl("change_password", brokerUser, next); err != nil {
		return err
	}
	r.cut()
	rest(ctx, d)
	return r.putPassword(next)
}

// nodeKilled kills one node of the cluster, another one each time, and boots it again.
func nodeKilled(_ context.Context, r *rig, _ time.Duration) error {
	n := r.nextNode()
	return errors.Join(n.kill(), n.start())
}

// partitioned cuts one node off from the others: it forgets their cookie. Afterwards it is booted anew, which is how
// operators end a partition that does not end by itself.
func partitioned(ctx context.Context, r *rig, d time.Duration) error {
	n := r.nextNode()
	var away strings.Builder
	for _, other := range r.nodes {
		if other == n {
			continue
		}
		name, err := other.name()
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(&away, "erlang:set_cookie('%s', wrong), erlang:disconnect_node('%s'), ", name, name)
	}
	if _, err := n.Eval(away.String() + "ok"); err != nil {
		return err
	}
	rest(ctx, d)
	if err := errors.Join(n.kill(), n.start()); err != nil {
		return err
	}
	return until(ctx, 2*time.Minute, "the cluster to be whole again", func() bool {
		nodes, err := n.count("length(nodes()) + 1")
		return err == nil && nodes == len(r.nodes)
	})
}

// halfOpen swallows everything. The sidecar has to notice by itself, long before a kernel would.
func halfOpen(ctx context.Context, r *rig, d time.Duration) error {
	r.shape(proxy.Shape{Stall: proxy.Both})
	defer r.shape(proxy.Shape{})
	start := time.Now()
	err := until(ctx, d, "the sidecar to notice", func() bool { return r.metric("sidecar_amqp_connected") == 0 })
	if err == nil {
		say("half-open link noticed after %s", time.Since(start).Round(time.Millisecond))
		if took := time.Since(start); took > noticeWithin {
			err = fmt.Errorf("noticed after %s", took)
		}
	}
	r.probe("half-open link noticed within 35 s", err)
	// The broker notices by itself as well, and delivers again what the sidecar had in flight.
	_ = until(ctx, d-time.Since(start), "the broker to notice", func() bool {
		open, err := r.node.connections("")
		return err == nil && open == 0
	})
	return nil
}

const noticeWithin = 35 * time.Second

// deleted takes the dead-letter queue away from under the sidecar until a message that was to be parked has return:
// a sidecar that checks the right moment would have the queue back before anything can go wrong.
func deleted(ctx context.Context, r *rig, _ time.Duration) error {
	for range 3 {
		parked, failed := r.metric(parkedTotal), r.metric(parkFailures)
		if err := r.deleteDeadLetters(ctx); err != nil {
			return err
		}
		_ = until(ctx, 10*time.Second, "a message to be parked", func() bool {
			return r.metric(parkFailures) > failed || r.metric(parkedTotal) > parked
		})
		if r.metric(parkFailures) > failed {
			break
		}
	}
	return nil
}

// deleteDeadLetters deletes the dead-letter queue. What it held was drained before; the sidecar is paused meanwhile,
// because the broker confirms what arrives while a queue is being deleted, even if only an empty one may be: such a
// message would be lost by the deletion and not by the sidecar.
func (r *rig) deleteDeadLetters(ctx context.Context) error {
	if err := r.post("/pause"); err != nil {
		return err
	}
	err := until(ctx, time.Minute, "nothing in flight", func() bool {
		return r.metric("sidecar_inflight_messages") == 0 && r.metric("sidecar_delayed_messages") == 0
	})
	if err == nil {
		err = r.drain(deadQueue, r.parked)
	}
	if gone, ok := errors.AsType[*amqp.Error](err); ok && gone.Code == amqp.NotFound {
		err = nil // nothing was parked since it was deleted the last time
	} else if err == nil {
		err = r.node.with(func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete(deadQueue, false, false, false)
			return err
		})
	}
	return errors.Join(err, r.post("/resume"))
}

// fill lets messages wait, and stops the sidecar from taking them no sooner than a moment before it is to end: a window
// that is empty has nothing to lose. It may fail where another fault is under way.
func (r *rig) fill(ctx context.Context) {
	if r.post("/pause") != nil {
		return
	}
	_ = until(ctx, 3*time.Second, "messages to wait", func() bool {
		n, err := r.node.ready(mainQueue)
		return err == nil && n >= 4*r.run.Prefetch
	})
	_ = r.post("/resume")
	rest(ctx, 30*time.Millisecond)
}

// The outcomes of messages that were to be parked.
const (
	parkedTotal  = `sidecar_messages_settled_total{outcome="park"`
	parkFailures = "sidecar_park_failures_total"
)

// due is one fault of a schedule.
type due struct {
	ID       int           `json:"id"`
	Kind     string        `json:"kind"`
	At       int           `json:"at"` // messages published
	Duration time.Duration `json:"duration_ns"`
	Overlap  bool          `json:"overlap"` // it begins while the one before still goes on
}

// schedule draws n faults over the messages from first to last. stretch makes those that last longer.
func schedule(seed uint64, n, first, last int, stretch float64, kinds []string) ([]due, error) {
	var able []fault
	sum := 0
	for _, f := range faults {
		for _, kind := range kinds {
			if kind == f.kind {
				able, sum = append(able, f), sum+f.weight
			}
		}
	}
	if sum == 0 && n > 0 {
		return nil, errors.New("no kind of fault is left to draw")
	}
	rng := rand.New(rand.NewPCG(seed, 0xfa017))
	list := make([]due, n)
	for i := range list {
		f := pick(able, sum, rng)
		if i < min(2, n/len(able))*len(able) {
			f = able[i%len(able)] // each kind at least twice, or once
		}
		d := f.duration
		if d > 0 && f.kind != "half-open" && f.kind != freezeReturns {
			d = time.Duration(float64(d/2+time.Duration(rng.Int64N(int64(d)))) * stretch)
		}
		list[i] = due{Kind: f.kind, Duration: d, Overlap: rng.IntN(5) == 0 && !f.alone}
	}
	rng.Shuffle(n, func(a, b int) { list[a], list[b] = list[b], list[a] })
	for i := range list {
		list[i].ID, list[i].At = i+1, first+(last-first)*i/n
		list[i].Overlap = list[i].Overlap && i > 0 && !byKind(list[i-1].Kind).alone && !list[i-1].Overlap
	}
	return list, nil
}

func pick(able []fault, sum int, rng *rand.Rand) fault {
	n := rng.IntN(sum)
	for _, f := range able {
		if n -= f.weight; n < 0 {
			return f
		}
	}
	return able[len(able)-1]
}

func byKind(kind string) fault {
	for _, f := range faults {
		if f.kind == kind {
			return f
		}
	}
	return fault{}
}

func allKinds() []string {
	var kinds []string
	for _, f := range faults {
		kinds = append(kinds, f.kind)
	}
	return kinds
}
