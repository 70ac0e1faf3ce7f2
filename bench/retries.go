package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// failures of each message, before the attempt that succeeds.
const failures = 9

// retriesResult has the figures of messages that fail, by the topology that lets them wait.
type retriesResult struct {
	Machine machine    `json:"machine"`
	Quick   bool       `json:"quick,omitempty"` // no figures to quote
	Delay   string     `json:"delay"`
	Runs    []*retries `json:"runs"`
}

// retries is what one run of one topology showed. Late is by how much a retry came after its delay, in milliseconds.
type retries struct {
	run

	Late map[string]float64 `json:"late_ms"` // by quantile
}

func (r *retries) number() float64 { return float64(r.Load.Messages * r.Load.Failures) }

// per10kRetries is CPU seconds per 10,000 retries.
func (r *retries) per10kRetries(cpu float64) float64 { return cpu / r.number() * 10_000 }

// errOldBroker says that the broker delays nothing itself.
var errOldBroker = errors.New("RabbitMQ 4.3 is needed: TEST_BROKER_VERSION=4.3 make bench ARGS='-only retries'")

// retries: every message fails nine times, with quorum queues that a retry goes round through (fanout), and with one
// that delays what is rejected itself (native).
func (b *bench) retries() error {
	var major, minor int
	if _, err := fmt.Sscanf(b.version, "%d.%d", &major, &minor); err != nil || major < 4 || major == 4 && minor < 3 {
		if slices.Contains(b.o.only, retried) {
			return fmt.Errorf("this is RabbitMQ %s: %w", b.version, errOldBroker)
		}
		b.say("  not measured: %v", errOldBroker)
		return nil
	}
	b.retriesBy.Delay = b.retryDelay.String()
	var steps []func() error
	keep := false
	for _, topology := range []string{"fanout", "native"} {
		c := b.sidecar
		c.name = topology
		c.env = []string{
			"SIDECAR_SERVICE=bench-" + topology, "SIDECAR_TOPOLOGY=" + topology, "SIDECAR_QUEUE_TYPE=quorum",
			"SIDECAR_RETRY_DELAY=" + b.retriesBy.Delay, "SIDECAR_PREFETCH=1000", "SIDECAR_LOG_LEVEL=warn",
		}
		steps = append(steps, func() error {
			n := b.size(min(4000, b.o.messages))
			r, err := b.failing(c, load{Messages: n, Body: 1024, Concurrency: 50, Failures: failures})
			if err != nil {
				return err
			}
			b.say("  %-10s broker CPU s/10k retries %6.3f, sidecar %6.3f   late %4.0f ms median, %4.0f ms p99", c.name,
				r.per10kRetries(r.Broker), r.per10kRetries(r.CPU), r.Late["p50"], r.Late["p99"])
			if keep {
				b.retriesBy.Runs = append(b.retriesBy.Runs, r)
			}
			return nil
		})
	}
	if err := b.rounds(1, steps...); err != nil {
		return err
	}
	keep = true
	return b.rounds(b.o.runs, steps...)
}

// failing is one run: the sidecar is ready, then the messages are published, and each of them fails some times.
func (b *bench) failing(c candidate, l load) (*retries, error) {
	queue := "bench.queue.bench-" + c.name
	if err := b.ask("POST", "/reset", appPlan{Expect: l.Messages, Failures: l.Failures}, nil); err != nil {
		return nil, err
	}
	p, err := b.launch(c, l.Concurrency)
	if err != nil {
		return nil, err
	}
	out, err := b.failed(p, c, l, queue)
	if err := errors.Join(err, p.stop()); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", c.name, err, p.tail())
	}
	if out.Stats, err = b.stats(); err != nil {
		return nil, err
	}
	late := make([]float64, len(out.Stats.Latencies))
	for i, ns := range out.Stats.Latencies {
		late[i] = float64(ns-int64(b.retryDelay)) / 1e6
	}
	out.Stats.Latencies = nil
	out.Late = map[string]float64{"min": quantile(late, 0), "p50": quantile(late, 0.5), "p99": quantile(late, 0.99),
		"max": quantile(late, 1)}
	if len(late) != l.Messages*l.Failures {
		return nil, fmt.Errorf("%s: %d retries arrived, want %d", c.name, len(late), l.Messages*l.Failures)
	}
	return out, out.balance()
}

func (b *bench) failed(p *process, c candidate, l load, queue string) (*retries, error) {
	if err := b.awaitQueue(queue); err != nil {
		return nil, err
	}
	if err := b.pause(b.rest); err != nil {
		return nil, err
	}
	before, err := b.usage(p)
	if err != nil {
		return nil, err
	}
	if err := b.put(queue, l, 0, l.Messages); err != nil {
		return nil, err
	}
	if err := b.waitReceived(p, l.Messages*(l.Failures+1)); err != nil {
		return nil, err
	}
	if err := b.pause(b.settled); err != nil {
		return nil, err
	}
	after, err := b.usage(p)
	if err != nil {
		return nil, err
	}
	return &retries{run: run{
		Candidate: c.name, Load: l,
		CPU: (after.candidate - before.candidate).Seconds(), Broker: (after.broker - before.broker).Seconds(),
	}}, nil
}

// awaitQueue waits until a sidecar has declared its queue.
func (b *bench) awaitQueue(queue string) error {
	for range 100 {
		ch, err := b.conn.Channel()
		if err != nil {
			return err
		}
		_, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		_ = ch.Close()
		if err == nil {
			return nil
		}
		if err := b.pause(100 * time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("queue %s was not declared within 10 s", queue)
}

func (s *retriesResult) by(topology string, value func(*retries) float64) (all []float64) {
	for _, r := range s.Runs {
		if r.Candidate == topology {
			all = append(all, value(r))
		}
	}
	return all
}

func brokerPerRetries(r *retries) float64 { return r.per10kRetries(r.Broker) }

// figures are the measured ones that have a bar.
func (s *retriesResult) figures() []figure {
	if len(s.Runs) == 0 || !s.Machine.BrokerCPU {
		return nil
	}
	share := ratios(s.by("native", brokerPerRetries), s.by("fanout", brokerPerRetries))
	const name = "broker CPU per retry, native ÷ fanout with quorum queues"
	return []figure{{name, spreadOf(share), "", 0.45, math.NaN(), false}}
}

// markdown is the report.
func (s *retriesResult) markdown(figures []figure) string {
	var b strings.Builder
	summary(&b, s.Machine, s.Quick, figures)
	fmt.Fprintf(&b, "\n%d messages a run, each of which fails %d times and waits %s each time, interleaved.\n",
		s.Runs[0].Load.Messages, failures, s.Delay)
	columns := []string{"quorum queues", "broker CPU s/10k retries", "sidecar CPU s/10k retries", "late ms, median",
		"99 %", "at most", "earliest"}
	table(&b, columns, func(row func(...string)) {
		for _, topology := range []string{"fanout", "native"} {
			late := func(q string) string {
				return spreadOf(s.by(topology, func(r *retries) float64 { return r.Late[q] })).String()
			}
			row(topology, spreadOf(s.by(topology, brokerPerRetries)).String(),
				spreadOf(s.by(topology, func(r *retries) float64 { return r.per10kRetries(r.CPU) })).String(),
				late("p50"), late("p99"), late("max"), late("min"))
		}
	})
	return b.String()
}
