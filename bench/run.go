package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"time"
)

// candidate is something that consumes the queue and POSTs to the app.
type candidate struct {
	name    string
	path    string
	sidecar bool
	env     []string
}

// launch starts a candidate for a load.
func (r *rig) launch(c candidate, concurrency int) (*process, error) {
	env := []string{
		"AMQP_URL=" + r.url, "QUEUE=" + mainQueue, "APP_URL=http://" + r.appData + "/",
		"CONCURRENCY=" + strconv.Itoa(concurrency),
	}
	if c.sidecar {
		env = append([]string{
			"SIDECAR_SERVICE=" + service, "SIDECAR_AMQP_URL=" + r.url, "SIDECAR_APP_URL=http://" + r.appData + "/",
			"SIDECAR_CONCURRENCY=" + strconv.Itoa(concurrency),
			"SIDECAR_ADMIN_ADDR=127.0.0.1:0", "SIDECAR_CONTROL_ADDR=127.0.0.1:0",
		}, r.extra...)
	}
	return r.start(c.name, c.path, false, append(env, c.env...)...)
}

// run is what one run of one candidate showed.
type run struct {
	Candidate string         `json:"candidate"`
	Load      load           `json:"load"`
	Rate      float64        `json:"messages_per_s"` // from the release of the held answers to the last arrival
	CPU       float64        `json:"cpu_s"`          // of the candidate, from the release until all is acked
	Broker    float64        `json:"broker_cpu_s"`
	App       float64        `json:"app_cpu_s"`
	Peak      int64          `json:"peak_rss_bytes"`
	Seconds   float64        `json:"seconds"`
	Stats     appStats       `json:"app"`
	Left      map[string]int `json:"left"`
}

// counted is how many messages what was measured is shared by: those the app already held when the clock started are
// not among them, which matters where few large messages meet many workers.
func (r *run) counted() float64 { return float64(max(int64(r.Load.Messages)-r.Stats.Held, 1)) }

// per10k is CPU seconds per 10,000 messages.
func (r *run) per10k(cpu float64) float64 { return cpu / r.counted() * 10_000 }

// balance is the ledger of a run: nil when every message published was received once and none is left.
func (r *run) balance() error {
	var errs []error
	n := int64(r.Load.Messages)
	if r.Load.Item != "" { // the app has only counted
		if r.Stats.Received != n {
			errs = append(errs, fmt.Errorf("%d messages reached the app, not %d", r.Stats.Received, n))
		}
	} else {
		errs = append(errs, r.each(n))
	}
	for q, left := range r.Left {
		if left != 0 {
			errs = append(errs, fmt.Errorf("%d messages left in the %s", left, q))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("the ledger of %s (%d messages, C=%d) does not balance: %w", r.Candidate, n, r.Load.Concurrency,
			err)
	}
	return nil
}

// each compares what the app has written down of each of n messages.
func (r *run) each(n int64) error {
	var errs []error
	if r.Stats.Distinct != n {
		errs = append(errs, fmt.Errorf("%d of %d messages never reached the app", n-r.Stats.Distinct, n))
	}
	if extra := r.Stats.Received - r.Stats.Unknown - r.Stats.Distinct*int64(r.Load.Failures+1); extra != 0 {
		errs = append(errs, fmt.Errorf("%d duplicates", extra))
	}
	if r.Stats.Unknown != 0 {
		errs = append(errs, fmt.Errorf("%d requests that no message was published for", r.Stats.Unknown))
	}
	return errors.Join(errs...)
}

// account closes the books of a run whose candidate has ended: what comes late, or returns, is in them.
func (r *rig) account(out *run) (err error) {
	if out.Stats, err = r.stats(); err != nil {
		return err
	}
	if out.Left, err = r.left(); err != nil {
		return err
	}
	if s := out.Stats; s.Last > s.Released && s.Released > 0 {
		out.Seconds = float64(s.Last-s.Released) / 1e9
		out.Rate = out.counted() / out.Seconds
	}
	return out.balance()
}

// usage is the CPU time of all processes so far.
type usage struct{ candidate, broker, app time.Duration }

func (r *rig) usage(p *process) (u usage, err error) {
	if u.candidate, err = cpuOf(p.pid()); err != nil {
		return u, fmt.Errorf("%w\n%s", err, p.tail())
	}
	if r.brokerPID != 0 {
		if u.broker, err = cpuOfTree(r.brokerPID); err != nil {
			return u, err
		}
	}
	u.app, err = cpuOf(r.app.pid())
	return u, err
}

// drain is one run: the queue is filled, the candidate connects and takes its window while the app holds its answers,
// then the clock starts.
func (r *rig) drain(c candidate, l load) (*run, error) {
	if err := r.fill(l); err != nil {
		return nil, fmt.Errorf("fill the queue: %w", err)
	}
	return r.drainFilled(c, l)
}

// drainFilled is drain on a queue that holds the load.
func (r *rig) drainFilled(c candidate, l load) (*run, error) {
	plan := appPlan{Expect: l.Messages, Sleep: l.Sleep, Hold: true, Item: l.Item}
	if err := r.ask("POST", "/reset", plan, nil); err != nil {
		return nil, err
	}
	p, err := r.launch(c, l.Concurrency)
	if err != nil {
		return nil, err
	}
	out, err := r.drained(p, c, l)
	if stopErr := p.stop(); stopErr != nil {
		err = errors.Join(err, fmt.Errorf("%s: %w", c.name, stopErr))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", c.name, err, p.tail())
	}
	return out, r.account(out)
}

// held is how many requests the app holds before the clock starts. A channel of the loop by hand takes two batches.
func (l load) held() int {
	if l.Batch == 0 {
		return min(l.Concurrency, l.Messages)
	}
	return min(l.Concurrency, max(1, l.Messages/(2*l.Batch)))
}

func (r *rig) drained(p *process, c candidate, l load) (*run, error) {
	if err := r.waitFor(0, l.held(), r.patience); err != nil {
		return nil, err
	}
	if err := r.pause(r.filled); err != nil {
		return nil, err
	}
	before, err := r.usage(p)
	if err != nil {
		return nil, err
	}
	if err := r.ask("POST", "/release", nil, nil); err != nil {
		return nil, err
	}
	if err := r.waitReceived(p, l.Messages); err != nil {
		return nil, err
	}
	if err := r.pause(r.settled); err != nil {
		return nil, err
	}
	after, err := r.usage(p)
	if err != nil {
		return nil, err
	}
	mem, err := memoryOf(p.pid())
	if err != nil {
		return nil, err
	}
	return &run{
		Candidate: c.name, Load: l, Peak: mem.peak,
		CPU:    (after.candidate - before.candidate).Seconds(),
		Broker: (after.broker - before.broker).Seconds(),
		App:    (after.app - before.app).Seconds(),
	}, nil
}

// declare lets a sidecar make its queues, the service's queue last.
func (r *rig) declare(c candidate) error {
	if err := r.ask("POST", "/reset", appPlan{}, nil); err != nil {
		return err
	}
	p, err := r.launch(c, 1)
	if err != nil {
		return err
	}
	for range 100 {
		if err := r.pause(100 * time.Millisecond); err != nil {
			return err
		}
		ch, err := r.conn.Channel()
		if err != nil {
			return err
		}
		_, err = ch.QueueDeclarePassive(mainQueue, true, false, false, false, nil)
		_ = ch.Close()
		if err == nil {
			return errors.Join(r.pause(r.settled), p.stop())
		}
	}
	_ = p.stop()
	return fmt.Errorf("the sidecar declared no queues within 10 s\n%s", p.tail())
}

// buildSidecar is what `make build` does, for a path that is not there.
func buildSidecar(ctx context.Context, path string) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "nethttpomithttp2", "-ldflags", "-s -w", "-o",
		path, "sidecar/cmd/sidecar")
	out, err := build.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build ./cmd/sidecar: %w\n%s", err, out)
	}
	return nil
}
