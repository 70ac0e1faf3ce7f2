package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
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
	steps := []func() error{func() error { return b.hop() }}
	for _, c := range b.candidates {
		steps = append(steps, func() error { return b.pacedRun(c) })
	}
	return b.rounds(min(b.o.runs, 3), steps...)
}

func (b *bench) pacedRun(c candidate) (err error) {
	n := b.size(ratePerSecond * rateSeconds)
	if err := b.ask("POST", "/reset", appPlan{Expect: n, Latency: true}, nil); err != nil {
		return err
	}
	if err := b.fill(load{}); err != nil { // purges
		return err
	}
	p, err := b.launch(c, 50)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	time.Sleep(2 * time.Second)
	before, err := cpuOf(p.pid())
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := b.publishPaced(n); err != nil {
		return err
	}
	if err := b.waitFor(n, 0); err != nil {
		return err
	}
	after, err := cpuOf(p.pid())
	if err != nil {
		return err
	}
	s, err := b.stats()
	if err != nil {
		return err
	}
	if s.Distinct != int64(n) || s.Received != int64(n) {
		return fmt.Errorf("the ledger of %s does not balance: %d received, %d distinct, of %d", c.name, s.Received, s.Distinct, n)
	}
	b.addPaced(c.name, (after-before).Seconds()/time.Since(begin).Seconds(), s.Latencies)
	return nil
}

func (b *bench) addPaced(name string, cpu float64, ns []int64) {
	ms := make([]float64, len(ns))
	for i, n := range ns {
		ms[i] = float64(n) / 1e6
	}
	slices.Sort(ms)
	r := paced{name, cpu, quantile(ms, 0.5), quantile(ms, 0.99)}
	b.say("  %-10s CPU %4.1f %% of a core, p50 %.2f ms, p99 %.2f ms", name, 100*r.CPU, r.P50, r.P99)
	b.result.Rate = append(b.result.Rate, r)
}

// publishPaced publishes n messages that say when they were published.
func (b *bench) publishPaced(n int) error {
	t := time.NewTicker(time.Second / ratePerSecond)
	defer t.Stop()
	rest := make([]byte, 1000)
	for i := range rest {
		rest[i] = ' '
	}
	for i := range n {
		<-t.C
		body := append([]byte("t="+strconv.FormatInt(time.Now().UnixNano(), 10)+" "), rest...)
		if _, err := b.ch.PublishWithDeferredConfirm("", mainQueue, true, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, MessageId: strconv.Itoa(i), Body: body,
		}); err != nil {
			return err
		}
	}
	return nil
}

// hop measures the broker alone: from publish to a consumer here.
func (b *bench) hop() error {
	if err := b.fill(load{}); err != nil {
		return err
	}
	n := b.size(ratePerSecond * rateSeconds)
	ch, err := b.conn.Channel()
	if err != nil {
		return err
	}
	defer ch.Close()
	if err := ch.Qos(100, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume(mainQueue, "hop", false, true, false, false, nil)
	if err != nil {
		return err
	}
	var ns []int64
	done := make(chan error, 1)
	go func() {
		for d := range deliveries {
			var published int64
			if _, err := fmt.Sscanf(string(d.Body[:min(40, len(d.Body))]), "t=%d", &published); err != nil {
				done <- err
				return
			}
			ns = append(ns, time.Now().UnixNano()-published)
			if err := d.Ack(false); err != nil || len(ns) == n {
				done <- err
				return
			}
		}
		done <- errors.New("the broker ended the consumer")
	}()
	if err := b.publishPaced(n); err != nil {
		return err
	}
	if err := <-done; err != nil {
		return err
	}
	b.addPaced("broker", 0, ns)
	return nil
}

// ceiling is how many requests per second the app answers to as many connections as a load has concurrency, each
// asking again as soon as it has its answer.
func (b *bench) ceiling(l load) (float64, error) {
	if err := b.ask("POST", "/reset", appPlan{Expect: l.Messages, Sleep: l.Sleep}, nil); err != nil {
		return 0, err
	}
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make(chan error, l.Concurrency)
	begin := time.Now()
	for range l.Concurrency {
		all.Go(func() {
			if err := b.asking(l, &next); err != nil {
				errs <- err
			}
		})
	}
	all.Wait()
	took := time.Since(begin)
	select {
	case err := <-errs:
		return 0, err
	default:
		return float64(l.Messages) / took.Seconds(), nil
	}
}

func (b *bench) asking(l load, next *atomic.Int64) error {
	c, err := net.Dial("tcp", b.appData)
	if err != nil {
		return err
	}
	defer c.Close()
	body := make([]byte, l.Body)
	answer := make([]byte, len("HTTP/1.1 204 No Content\r\n\r\n"))
	for {
		i := next.Add(1) - 1
		if i >= int64(l.Messages) {
			return nil
		}
		request := fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: app\r\nContent-Length: %d\r\nAmqp-Message-Id: %d\r\n\r\n%s", l.Body, i, body)
		if _, err := c.Write(request); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, answer); err != nil {
			return err
		}
	}
}
