package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"sidecar/internal/testkit/proxy"
	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
)

// Bounds of what the driver waits for.
const (
	recoverWithin = time.Minute
	readyWithin   = 15 * time.Second
)

// drive runs all phases. An error is trouble with the run itself; what the sidecar does wrong is for the judge.
func (r *rig) drive(ctx context.Context, list []due) error {
	if err := r.phase("warm-up"); err != nil {
		return err
	}
	if err := r.allow(r.run.WarmUp); err != nil {
		return err
	}
	if err := r.settled(ctx); err != nil {
		return err
	}
	if err := r.quiet(ctx, "quiet after the warm-up"); err != nil {
		return err
	}
	if err := r.calibrate(ctx); err != nil {
		return err
	}
	if err := r.scrape(ledger.WarmUpMetrics); err != nil {
		return err
	}
	if err := r.measure("before"); err != nil {
		return err
	}
	if err := r.phase(ledger.Storm); err != nil {
		return err
	}
	if err := r.storm(ctx, list); err != nil {
		return err
	}
	if err := r.phase("heal"); err != nil {
		return err
	}
	if err := r.heal(ctx); err != nil {
		return err
	}
	return r.liveness(ctx)
}

func (r *rig) phase(name string) error {
	say("%s, %d messages published", name, r.published.Load())
	return r.phases.Write(ledger.Phase{Name: name, At: ledger.Now()})
}

// storm makes every fault when its message is published, and lets the publisher go on meanwhile.
func (r *rig) storm(ctx context.Context, list []due) error {
	last := r.run.WarmUp + r.o.messages - r.run.Liveness + r.ordered
	var before sync.WaitGroup // the fault before, when this one overlaps with it
	for i, d := range list {
		if err := r.allow(d.At + r.ordered); err != nil {
			return err
		}
		if err := r.settled(ctx); err != nil {
			return err
		}
		if err := r.keepUp(ctx); err != nil {
			return err
		}
		next := last
		if i+1 < len(list) {
			next = list[i+1].At + r.ordered
		}
		if err := r.allow(next); err != nil {
			return err
		}
		if i+1 < len(list) && list[i+1].Overlap {
			before.Go(func() { r.happen(ctx, d) })
			continue
		}
		r.happen(ctx, d)
		before.Wait()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	before.Wait()
	return r.allow(last) // when there are no faults
}

// keepUp waits until the sidecar has caught up with the publisher, more or less. Retries go to the end of the queue:
// behind an endless backlog no message would ever use them up.
func (r *rig) keepUp(ctx context.Context) error {
	return until(ctx, r.o.patience, "the sidecar to keep up", func() bool {
		waiting, err := r.node.ready(mainQueue)
		return err == nil && waiting < backlog*r.o.together()
	})
}

// backlog is how many seconds the sidecar may lag behind the publisher when the next fault begins.
const backlog = 10

// happen makes one fault and waits until messages arrive again.
func (r *rig) happen(ctx context.Context, d due) {
	f := byKind(d.Kind)
	record := ledger.Fault{ID: d.ID, Kind: d.Kind, Class: f.class, At: d.At, Start: ledger.Now()}
	err := f.do(ctx, r, d.Duration)
	record.End = ledger.Now()
	if err != nil {
		record.Error = err.Error()
	}
	from := arrives(d.Kind)
	if r.recovered(ctx, record.End, from) {
		record.Recovered = r.lastSeen[from].Load()
	}
	say("fault %d: %s after %d messages, %s, recovered after %s%s", d.ID, d.Kind, d.At, took(record.Start, record.End),
		took(record.End, record.Recovered), failure(err))
	if err := r.faults.Write(record); err != nil {
		say("fault ledger: %v", err)
	}
}

// recovered waits for a receipt after a time, of a message of one source, and keeps those coming meanwhile.
func (r *rig) recovered(ctx context.Context, end int64, from plan.Source) bool {
	for limit := time.Now().Add(recoverWithin); time.Now().Before(limit) &&
		ctx.Err() == nil; rest(ctx, 20*time.Millisecond) {
		if r.lastSeen[from].Load() > end {
			return true
		}
		r.trickle(from)
	}
	return false
}

// idle reports whether the publisher has nothing to do.
func (r *rig) idle() bool {
	r.extending.Lock()
	defer r.extending.Unlock()
	return int(r.published.Load()) >= r.limit
}

// extra lets n more messages be published than planned so far; of their own kind, unless that is empty.
func (r *rig) extra(n int, kind plan.Kind) {
	r.extending.Lock()
	defer r.extending.Unlock()
	if err := r.allowed(r.limit+n, kind); err != nil {
		say("publisher: %v", err)
	}
}

// heal undoes whatever may still be broken and waits until all is settled.
func (r *rig) heal(ctx context.Context) error {
	r.shape(proxy.Shape{})
	_ = r.sidecar.signal(syscall.SIGCONT)
	_ = r.app.signal(syscall.SIGCONT)
	_ = r.app.signal(syscall.SIGUSR2)
	if r.db != nil {
		_ = r.db.sh("thaw")
	}
	if err := r.node.ctl("set_vm_memory_high_watermark", "0.6"); err != nil {
		return err
	}
	r.probe("ready after the faults", until(ctx, readyWithin, "ready", r.ready))
	if err := r.settled(ctx); err != nil {
		return err
	}
	return r.quiet(ctx, "everything settled after the faults")
}

// liveness publishes once more and checks whether everything works as on the first day.
func (r *rig) liveness(ctx context.Context) error {
	if err := r.phase("liveness"); err != nil {
		return err
	}
	r.extra(r.run.Liveness, "")
	if err := r.settled(ctx); err != nil {
		return err
	}
	if err := r.quiet(ctx, "everything settled in the end"); err != nil {
		return err
	}
	if err := r.calibrate(ctx); err != nil {
		return err
	}
	consumers, err := r.node.consumers(mainQueue)
	if err == nil && consumers != r.o.replicas {
		err = fmt.Errorf("%d consumers", consumers)
	}
	r.probe("a consumer for each replica", err)
	r.probe("a window of the configured size", r.node.window(mainQueue, r.run.Prefetch, r.o.replicas))
	if err := r.measure("after"); err != nil {
		return err
	}
	if err := r.phase("drain"); err != nil {
		return err
	}
	if err := r.scrape(ledger.MetricsFile); err != nil {
		return err
	}
	r.sidecar.stop(r.run.Grace + 10*time.Second)
	if r.second != nil {
		r.second.stop(r.run.Grace + 10*time.Second)
	}
	if r.relay != nil {
		r.relay.stop(r.run.Grace + 10*time.Second)
	}
	if r.db != nil {
		if err := r.db.dump(ctx, r.table); err != nil {
			return err
		}
	}
	for _, queue := range r.o.queues() {
		if err := r.drain(queue, r.residual); err != nil {
			return err
		}
	}
	return r.drain(deadQueue, r.parked)
}

// calibrate publishes what the judge compares before and after the faults, when nothing else is to do: messages for an
// app that takes its time show whether the sidecar still does as much at once, messages that fail once whether retries
// come in time. The slow ones are a second of the publisher's work at most, else that would be what is seen.
func (r *rig) calibrate(ctx context.Context) error {
	for _, g := range []struct {
		kind plan.Kind
		n    int
	}{{plan.Slow, min(20*r.run.Concurrency, r.o.rate)}, {plan.Prompt, prompt}} {
		r.extra(g.n, g.kind)
		r.ordered += g.n
		if err := r.settled(ctx); err != nil {
			return err
		}
		if err := r.quiet(ctx, "quiet after "+string(g.kind)+" messages"); err != nil {
			return err
		}
	}
	return nil
}

// prompt is how many messages show how soon retries come.
const prompt = 20

// scrape writes the sidecar's metrics down.
func (r *rig) scrape(file string) error {
	text, err := r.get(r.admin + "/metrics")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, file), []byte(text), 0o600)
}

func (r *rig) probe(name string, err error) {
	p := ledger.Probe{Name: name, OK: err == nil, At: ledger.Now()}
	if err != nil {
		p.Text = err.Error()
	}
	if err := r.probes.Write(p); err != nil {
		say("probe ledger: %v", err)
	}
}

// quiet waits until no queue but the dead-letter queue holds anything, unacked messages included, and nothing is in
// hand.
func (r *rig) quiet(ctx context.Context, what string) error {
	var since time.Time
	err := until(ctx, r.o.patience, what, func() bool {
		waiting, err := r.node.ready(r.o.queues()...)
		if err != nil || waiting > 0 || r.inHand() != 0 {
			since = time.Time{}
			return false
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) < r.o.calm() {
			return false
		}
		if r.db != nil {
			if rows, err := r.db.waiting(ctx); err != nil || rows > 0 {
				since = time.Time{} // until the last of them is in a queue
				return false
			}
		}
		total, err := r.node.total(r.o.queues()...)
		return err == nil && total == 0
	})
	r.probe(what, err)
	return ctx.Err()
}

// inHand is how many deliveries the sidecars have not settled, and have let wait in their queue; not 0 when one cannot
// be asked.
func (r *rig) inHand() (sum float64) {
	for _, admin := range r.admins {
		received := r.metricOf(admin, "sidecar_messages_received_total")
		if received < 0 {
			return -1
		}
		sum += received - r.metricOf(admin, "sidecar_messages_settled_total") -
			r.metricOf(admin, "sidecar_stale_deliveries_total") + max(0, r.metricOf(admin, "sidecar_waiting_messages"))
	}
	return sum
}

// measure writes down what the sidecar and its connections to the app hold.
func (r *rig) measure(label string) error {
	pid := r.sidecar.pid()
	m := ledger.Resources{Label: label, At: ledger.Now(), PID: pid, Goroutines: int(r.metric("go_goroutines"))}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return err
	}
	m.Descriptors = len(open)
	if m.RSS, err = resident(pid); err != nil {
		return err
	}
	text, err := r.get("http://" + r.appAddr + "/connections")
	if err != nil {
		return err
	}
	if m.AppConns, err = strconv.Atoi(text); err != nil {
		return err
	}
	return r.resources.Write(m)
}

// resident is the memory of a process in bytes.
func resident(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0, err
	}
	return pages * int64(os.Getpagesize()), nil
}

func took(from, to int64) time.Duration {
	return time.Duration(max(0, to-from)).Round(time.Millisecond)
}

func failure(err error) string {
	if err == nil {
		return ""
	}
	return ", FAILED: " + err.Error()
}
