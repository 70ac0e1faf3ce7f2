package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"
)

// The fixed low rate.
const (
	ratePerSecond = 200
	rateSeconds   = 20
)

// paced is what a candidate does at the low rate.
type paced struct {
	Candidate string  `json:"candidate"`
	CPU       float64 `json:"cpu_share_of_a_core"`
	P50       float64 `json:"p50_ms"` // publish to arrival at the app
	P99       float64 `json:"p99_ms"`
}

// rate: 200 messages a second. "broker" is the way to a consumer in this process, which a candidate adds to.
func (b *bench) rate() error {
	steps := []func() error{func() error {
		p, err := b.hop()
		b.result.Rate = append(b.result.Rate, p)
		return err
	}}
	for _, c := range b.candidates {
		steps = append(steps, func() error {
			p, err := b.pacedRun(c, load{Body: 1024, Concurrency: 50})
			b.result.Rate = append(b.result.Rate, p)
			return err
		})
	}
	return b.rounds(min(b.o.runs, 3), steps...)
}

// pacedRun is one run at the low rate; the number of its messages is that of all such runs.
func (b *bench) pacedRun(c candidate, l load) (out paced, err error) {
	l.Messages = b.size(b.paced)
	if err := b.ask("POST", "/reset", appPlan{Expect: l.Messages, Latency: true, Item: l.Item}, nil); err != nil {
		return out, err
	}
	if err := b.fill(load{}); err != nil { // purges
		return out, err
	}
	p, err := b.launch(c, l.Concurrency)
	if err != nil {
		return out, err
	}
	cpu, err := b.pacedCPU(p, l.Messages)
	if err := errors.Join(err, p.stop()); err != nil {
		return out, fmt.Errorf("%s: %w", c.name, err)
	}
	r := &run{Candidate: c.name, Load: l}
	if err := b.account(r); err != nil {
		return out, err
	}
	if n := len(r.Stats.Latencies); n != l.Messages {
		return out, fmt.Errorf("%s: %d of %d messages said when they were published", c.name, n, l.Messages)
	}
	return b.pacedOf(c.name, cpu, r.Stats.Latencies), nil
}

// pacedCPU is the share of a core that p needs at the low rate.
func (b *bench) pacedCPU(p *process, n int) (float64, error) {
	if err := b.pause(2 * b.rest); err != nil { // its start is another figure
		return 0, err
	}
	before, err := cpuOf(p.pid())
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := b.publishPaced(n); err != nil {
		return 0, err
	}
	if err := b.waitReceived(p, n); err != nil {
		return 0, err
	}
	after, err := cpuOf(p.pid())
	return (after - before).Seconds() / time.Since(begin).Seconds(), err
}

func (b *bench) pacedOf(name string, cpu float64, ns []int64) paced {
	ms := make([]float64, len(ns))
	for i, n := range ns {
		ms[i] = float64(n) / 1e6
	}
	slices.Sort(ms)
	r := paced{name, cpu, quantile(ms, 0.5), quantile(ms, 0.99)}
	b.say("  %-10s CPU %4.1f %% of a core, p50 %.2f ms, p99 %.2f ms", name, 100*r.CPU, r.P50, r.P99)
	return r
}

// publishPaced publishes n messages that say when they were published. Each has its time, also when those before it
// failed: a ticker would drop the ticks that a busy machine misses, and the rate would not be the one that is named.
func (b *bench) publishPaced(n int) error {
	begin := time.Now()
	for i := range n {
		if err := b.pause(time.Until(begin.Add(time.Duration(i) * time.Second / ratePerSecond))); err != nil {
			return err
		}
		body := fmt.Appendf(make([]byte, 0, 1024), `{"t":%d,"x":"`, time.Now().UnixNano())
		for len(body) < cap(body)-len(`"}`) {
			body = append(body, 'x')
		}
		body = append(body, `"}`...)
		if _, err := b.ch.PublishWithDeferredConfirm("", mainQueue, true, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, ContentType: "application/json", MessageId: strconv.Itoa(i), Body: body,
		}); err != nil {
			return err
		}
	}
	return nil
}

// hop measures the broker alone: from publish to a consumer here, on a connection of its own as any consumer has.
func (b *bench) hop() (out paced, err error) {
	if err := b.fill(load{}); err != nil {
		return out, err
	}
	n := b.size(b.paced)
	conn, err := amqp.Dial(b.url)
	if err != nil {
		return out, err
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		return out, err
	}
	if err := ch.Qos(100, 0, false); err != nil {
		return out, err
	}
	deliveries, err := ch.Consume(mainQueue, "hop", false, true, false, false, nil)
	if err != nil {
		return out, err
	}
	var ns []int64
	done := make(chan error, 1)
	go func() {
		var err error
		ns, err = hops(deliveries, n)
		done <- err
	}()
	if err := b.publishPaced(n); err != nil {
		return out, err
	}
	select {
	case err = <-done:
	case <-time.After(b.patience):
		err = errors.New("the broker did not deliver what was published")
	}
	if err != nil {
		return out, err
	}
	return b.pacedOf("broker", 0, ns), nil
}

// hops takes n deliveries and returns how long they were on their way.
func hops(deliveries <-chan amqp.Delivery, n int) (ns []int64, err error) {
	for d := range deliveries {
		now := time.Now().UnixNano()
		var published int64
		if _, err := fmt.Sscanf(string(d.Body[:min(40, len(d.Body))]), `{"t":%d`, &published); err != nil {
			return nil, err
		}
		ns = append(ns, now-published)
		if err := d.Ack(false); err != nil || len(ns) == n {
			return ns, err
		}
	}
	return nil, errors.New("the broker ended the consumer")
}

// ceiling is how many requests per second the app answers to as many connections as a load has concurrency, each
// asking again as soon as it has its answer. It is timed as a drain is: by the app, from the release of held answers to
// the last arrival.
func (b *bench) ceiling(l load) (float64, error) {
	if err := b.fill(load{}); err != nil { // purges
		return 0, err
	}
	if err := b.ask("POST", "/reset", appPlan{Expect: l.Messages, Sleep: l.Sleep, Hold: true}, nil); err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(b.ctx) // a failure ends all: no part waits for messages that do not come
	defer stop()
	var next atomic.Int64
	all, ctx := errgroup.WithContext(ctx)
	for range l.Concurrency {
		all.Go(func() error { return b.asking(ctx, l, &next) })
	}
	err := b.waitFor(0, min(l.Concurrency, l.Messages), b.patience)
	if err == nil {
		err = b.ask("POST", "/release", nil, nil)
	}
	if err != nil {
		stop()
	}
	if err := errors.Join(err, all.Wait()); err != nil {
		return 0, err
	}
	out := &run{Candidate: "ceiling", Load: l}
	err = b.account(out)
	return out.Rate, err
}

func (b *bench) asking(ctx context.Context, l load, next *atomic.Int64) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", b.appData)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	body := make([]byte, l.Body)
	answer := make([]byte, len("HTTP/1.1 204 No Content\r\n\r\n"))
	var request []byte
	for {
		i := next.Add(1) - 1
		if i >= int64(l.Messages) {
			return nil
		}
		request = fmt.Appendf(request[:0], "POST / HTTP/1.1\r\nHost: app\r\nContent-Length: %d\r\nAmqp-Message-Id: "+
			"%d\r\n\r\n", l.Body, i)
		request = append(request, body...)
		if _, err := c.Write(request); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, answer); err != nil {
			return err
		}
	}
}
