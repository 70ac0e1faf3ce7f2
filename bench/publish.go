package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Where everything goes that the sidecar sends: a direct exchange, its only queue, and the queue's key.
const sentQueue = "bench.published"

// asked is a load of requests.
type asked struct {
	Requests    int `json:"requests"`
	Batch       int `json:"messages_per_request"` // 0: the body is the message
	Body        int `json:"body_bytes"`
	Connections int `json:"connections"`
}

func (a asked) messages() int { return a.Requests * max(a.Batch, 1) }

// pubRun is what one run of one candidate showed. CPU is from the first request until all is answered.
type pubRun struct {
	Candidate string  `json:"candidate"`
	Load      asked   `json:"load"`
	Rate      float64 `json:"messages_per_s"`
	CPU       float64 `json:"cpu_s"`
	Broker    float64 `json:"broker_cpu_s"`
	Client    float64 `json:"client_cpu_s"`
	P50       float64 `json:"p50_ms"` // of a request
	P99       float64 `json:"p99_ms"`
	Peak      int64   `json:"peak_rss_bytes"`
}

func (r *pubRun) per10k(cpu float64) float64 { return cpu / float64(r.Load.messages()) * 10_000 }

// httpSingle: one message a request, 50 at a time, against the service that people write by hand.
func (b *bench) httpSingle() (err error) {
	b.produced.Publish, err = b.published(asked{Requests: b.o.messages, Body: 1024, Connections: 50})
	return err
}

// httpBatch: a hundred messages a request.
func (b *bench) httpBatch() (err error) {
	b.produced.Batch, err = b.published(asked{Requests: max(b.o.messages/100, 1), Batch: 100, Body: 1024, Connections: 5})
	return err
}

// tracedBaseline is the service by hand whose messages have a traceparent, as those of the sidecar always have: the
// broker reads the header table of each message.
const tracedBaseline = "baseline, traceparent"

func (b *bench) published(l asked) (out []*pubRun, err error) {
	if err := b.declareSent(); err != nil {
		return nil, err
	}
	keep := false
	var steps []func() error
	byHand := candidate{name: "baseline", path: filepath.Join(b.tools, "publisher")}
	traced := candidate{name: tracedBaseline, path: byHand.path, env: []string{"TRACEPARENT=1"}}
	for _, c := range append(b.with(byHand), traced) {
		steps = append(steps, func() error {
			r, err := b.publishing(c, l)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			b.say("  %-21s %8.0f msg/s   CPU s/10k %6.3f, broker %6.3f, client %6.3f   p50 %.2f ms, p99 %.2f ms   peak %5.1f "+
				"MiB",
				c.name, r.Rate, r.per10k(r.CPU), r.per10k(r.Broker), r.per10k(r.Client), r.P50, r.P99, mib(r.Peak))
			if keep {
				out = append(out, r)
			}
			return nil
		})
	}
	b.say("  warm-up")
	if err := b.rounds(1, steps...); err != nil {
		return nil, err
	}
	keep = true
	b.say("  measured")
	return out, b.rounds(b.o.runs, steps...)
}

// with is the baseline and every sidecar.
func (b *bench) with(baseline candidate) []candidate {
	return append([]candidate{baseline}, b.candidates[1:]...)
}

// publishing is one run: candidate and client are connected, then the clock starts.
func (b *bench) publishing(c candidate, l asked) (_ *pubRun, err error) {
	if _, err := b.ch.QueuePurge(sentQueue, false); err != nil {
		return nil, err
	}
	addr, err := b.freeAddr()
	if err != nil {
		return nil, err
	}
	env := []string{"ADDR=" + addr, "EXCHANGE=" + sentQueue}
	if c.sidecar {
		env = []string{"SIDECAR_PUBLISH_ADDR=" + addr, "SIDECAR_PUBLISH_EXCHANGES=bench=" + sentQueue}
	}
	c.env = append(env, c.env...)
	p, err := b.launch(c, l.Connections)
	if err != nil {
		return nil, err
	}
	out, err := b.sending(p, addr, l)
	if err := errors.Join(err, p.stop()); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, p.tail())
	}
	out.Candidate = c.name
	n, err := b.inSentAtRest()
	if err == nil && n != l.messages() {
		err = fmt.Errorf("the ledger of %s does not balance: %d of %d messages are in the queue", c.name, n, l.messages())
	}
	return out, err
}

// sending lets a client send the load to p.
func (b *bench) sending(p *process, addr string, l asked) (_ *pubRun, err error) {
	if err := b.readyAt(p, "http://"+addr+"/readyz"); err != nil {
		return nil, err
	}
	path := "/publish/bench/" + sentQueue
	if l.Batch > 0 {
		path = "/publish:batch"
	}
	client, err := b.start("client", filepath.Join(b.tools, "client"), true, "ADDR="+addr, "REQUEST_PATH="+path,
		"REQUESTS="+strconv.Itoa(l.Requests), "BATCH="+strconv.Itoa(l.Batch), "BODY="+strconv.Itoa(l.Body),
		"CONNECTIONS="+strconv.Itoa(l.Connections))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.stop()) }()
	said := json.NewDecoder(client.out)
	var connected string
	if err := said.Decode(&connected); err != nil {
		return nil, fmt.Errorf("the client did not connect: %w\n%s", err, client.tail())
	}
	before, err := b.spending(client, p)
	if err != nil {
		return nil, err
	}
	if err := client.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		return nil, err
	}
	var report struct {
		Begin, End int64
		Good       int
		Latencies  []int64
		Problem    string
	}
	if err := said.Decode(&report); err != nil {
		return nil, fmt.Errorf("the client failed: %w\n%s", err, client.tail())
	}
	after, err := b.spending(client, p)
	if err != nil {
		return nil, err
	}
	if report.Good != l.messages() {
		return nil, fmt.Errorf("%d of %d messages were answered well; the first that was not: %s", report.Good, l.messages(),
			report.Problem)
	}
	mem, err := memoryOf(p.pid())
	ms := milliseconds(report.Latencies)
	spent := after.minus(before)
	return &pubRun{
		Load: l, Rate: float64(l.messages()) / (float64(report.End-report.Begin) / 1e9),
		CPU: spent.candidates, Broker: spent.broker, Client: spent.client,
		P50: quantile(ms, 0.5), P99: quantile(ms, 0.99), Peak: mem.peak,
	}, err
}

func milliseconds(ns []int64) []float64 {
	ms := make([]float64, len(ns))
	for i, n := range ns {
		ms[i] = float64(n) / 1e6
	}
	return ms
}

// readyAt waits until the URL answers 200.
func (r *rig) readyAt(p *process, url string) error {
	for end := time.Now().Add(r.patience); time.Now().Before(end); {
		req, err := http.NewRequestWithContext(r.ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		if resp, err := r.client.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return r.pause(r.settled)
			}
		}
		select {
		case <-p.ended:
			return fmt.Errorf("ended by itself: %w", errors.Join(errors.New("not asked to"), p.err))
		case <-time.After(20 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s is not ready", url)
}

func (r *rig) freeAddr() (string, error) {
	var listen net.ListenConfig
	// An outgoing connection of another process, which has 127.0.0.1, cannot take the port meanwhile.
	host := fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	l, err := listen.Listen(r.ctx, "tcp", host)
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// declareSent makes the exchange and the queue.
func (r *rig) declareSent() error {
	if err := r.ch.ExchangeDeclare(sentQueue, "direct", true, false, false, false, nil); err != nil {
		return err
	}
	if _, err := r.ch.QueueDeclare(sentQueue, true, false, false, false, nil); err != nil {
		return err
	}
	return r.ch.QueueBind(sentQueue, sentQueue, sentQueue, false, nil)
}

// inSent counts the messages in the queue.
func (r *rig) inSent() (int, error) {
	q, err := r.ch.QueueDeclarePassive(sentQueue, true, false, false, false, nil)
	return q.Messages, err
}

// inSentAtRest counts them when the number stays the same.
func (r *rig) inSentAtRest() (n int, err error) {
	last := -1
	for same := 0; same < 3; {
		if n, err = r.inSent(); err != nil {
			return 0, err
		}
		if same++; n != last {
			last, same = n, 1
		}
		if err := r.pause(30 * time.Millisecond); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// spending is the CPU time of all processes so far, in seconds.
type spending struct{ candidates, broker, client, database float64 }

func (s spending) minus(o spending) spending {
	return spending{s.candidates - o.candidates, s.broker - o.broker, s.client - o.client, s.database - o.database}
}

// spending is the CPU time of the candidates, the servers, and of the client unless it is nil.
func (r *rig) spending(client *process, candidates ...*process) (s spending, err error) {
	add := func(into *float64, pid int, of func(int) (time.Duration, error)) {
		if err != nil || pid == 0 {
			return
		}
		var d time.Duration
		d, err = of(pid)
		*into += d.Seconds()
	}
	for _, p := range candidates {
		add(&s.candidates, p.pid(), cpuOf)
	}
	if client != nil {
		add(&s.client, client.pid(), cpuOf)
	}
	add(&s.broker, r.brokerPID, cpuOfTree)
	if r.db != nil {
		add(&s.database, r.db.pid, cpuOfTree)
	}
	return s, err
}
