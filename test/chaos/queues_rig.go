package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/depth"
	"sidecar/internal/testkit/proxy"
	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/queues"
)

// queueRig is everything that runs: the broker, the sidecars, each behind a wire of its own, the app and the publisher.
type queueRig struct {
	o     queueOptions
	run   queues.Run
	node  *node
	wires []*proxy.Proxy
	admin []string

	sidecars  []*process
	app       *process
	appAddr   string
	client    http.Client
	publisher queues.Publisher
	published chan error
	over      context.CancelFunc // ends the publisher

	faults, parked, residual, exits, probes *ledger.Writer
}

func newQueueRig(o queueOptions, run queues.Run, n *node) (*queueRig, error) {
	r := &queueRig{o: o, run: run, node: n, client: http.Client{Timeout: 2 * time.Second}, published: make(chan error, 1)}
	for name, w := range map[string]**ledger.Writer{ledger.FaultFile: &r.faults, ledger.ParkedFile: &r.parked,
		ledger.ResidualFile: &r.residual,
		ledger.ExitFile:     &r.exits, ledger.ProbeFile: &r.probes, queues.SentFile: &r.publisher.Log} {
		var err error
		if *w, err = ledger.Append(o.dir, name); err != nil {
			return nil, err
		}
	}
	for range o.replicas {
		w, err := proxy.Start(proxy.Options{Target: n.addr()})
		if err != nil {
			return nil, err
		}
		r.wires = append(r.wires, w)
	}
	return r, nil
}

// start brings everything up, and returns when every sidecar is ready.
func (r *queueRig) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if r.appAddr, err = proxy.FreeAddr(); err != nil {
		return err
	}
	if r.app, err = keep(func() *exec.Cmd {
		return r.command("app.out", self, nil, "queues-app", "-dir", r.o.dir, "-addr", r.appAddr)
	}, nil); err != nil {
		return err
	}
	if err := until(ctx, 10*time.Second, "the app to listen", func() bool { return r.seen() != nil }); err != nil {
		return err
	}
	for i, w := range r.wires {
		admin, err := proxy.FreeAddr()
		if err != nil {
			return err
		}
		r.admin = append(r.admin, admin)
		environ := r.environ(w.Addr(), admin)
		p, err := keep(func() *exec.Cmd { return r.command(fmt.Sprintf("sidecar-%d.log", i), r.o.sidecar, environ) },
			func(e ledger.Exit) { _ = r.exits.Write(e) })
		if err != nil {
			return err
		}
		r.sidecars = append(r.sidecars, p)
		if err := until(ctx, 30*time.Second, "the sidecar to be ready", func() bool { return r.ready(i) }); err != nil {
			return err
		}
	}
	r.publisher.Run, r.publisher.URL, r.publisher.Rate = r.run, r.node.url, r.o.rate
	publishing, over := context.WithCancel(ctx)
	r.over = over
	go func() { r.published <- r.publisher.Publish(publishing) }()
	return nil
}

func (r *queueRig) environ(broker, admin string) []string {
	env := []string{
		"SIDECAR_SERVICE=" + service, "SIDECAR_AMQP_URL=amqp://guest:guest@" + broker + "/",
		"SIDECAR_APP_URL=http://" + r.appAddr + "/", "SIDECAR_ADMIN_ADDR=" + admin, "SIDECAR_CONTROL_ADDR=127.0.0.1:0",
		"SIDECAR_QUEUE_TYPE=" + r.o.queueType, "SIDECAR_RETRY_DELAY=" + r.run.RetryDelay.String(),
		fmt.Sprint("SIDECAR_MAX_RETRIES=", r.run.MaxRetries), "SIDECAR_APP_TIMEOUT=" + r.run.AppTimeout.String(),
		fmt.Sprint("SIDECAR_CONCURRENCY=", r.o.concurrency), fmt.Sprint("SIDECAR_PREFETCH=", r.o.prefetch),
		"SIDECAR_REQUEUE_DELAY_MAX=600ms", "SIDECAR_SHUTDOWN_GRACE=10s",
	}
	order := "ORDER_BY=header:" + queues.KeyHeader
	if r.o.queues == 0 && r.o.ordered > 0 {
		env = append(env, "SIDECAR_"+order)
	}
	if r.o.queues > 0 {
		env = append(env, "SIDECAR_SUBSCRIPTIONS="+strings.Join(r.run.Names, ","))
		for i, name := range r.run.Names {
			prefix := "SIDECAR_SUB_" + strings.ToUpper(name)
			env = append(env, prefix+"_APP_URL=http://"+r.appAddr+"/"+name, prefix+"_QUEUE="+r.run.Queues[i])
			if i < r.o.ordered {
				env = append(env, prefix+"_"+order)
			}
		}
	}
	return append(env, r.o.environ...)
}

func (r *queueRig) command(log, path string, environ []string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.o.dir}, environ...)
	if f, err := os.OpenFile(filepath.Join(r.o.dir, log), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		cmd.Stdout, cmd.Stderr = f, f
	}
	return cmd
}

// ask sends a request to the app or a sidecar and returns the body; nil when it is not answered with 200.
func (r *queueRig) ask(method, url string) []byte {
	req, err := http.NewRequestWithContext(context.Background(), method, url, nil)
	if err != nil {
		return nil
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil
	}
	return append(b, '\n') // not nil
}

func (r *queueRig) ready(i int) bool {
	return r.ask(http.MethodGet, "http://"+r.admin[i]+"/readyz") != nil
}

// seen returns what the app has received, by queue; nil when it does not answer.
func (r *queueRig) seen() (all []queues.Seen) {
	if json.Unmarshal(r.ask(http.MethodGet, "http://"+r.appAddr+"/seen"), &all) != nil {
		return nil
	}
	return all
}

// mode changes what the app does with the messages of a queue.
func (r *queueRig) mode(queue int, m queues.Mode) error {
	if r.ask(http.MethodPost, fmt.Sprintf("http://%s/mode?queue=%d&mode=%s", r.appAddr, queue, m)) == nil {
		return fmt.Errorf("the app does not take the mode %s", m)
	}
	return nil
}

// quietSeconds is how long messages are published at least between two faults, so that a trouble of one queue is not
// excused by a fault of all just before it.
const quietSeconds = 3

// drive makes every fault when its number of messages is published, and then waits until all is settled.
func (r *queueRig) drive(ctx context.Context) error {
	for _, d := range queueSchedule(&r.o) {
		due := max(d.At, int(r.publisher.Sent.Load())+quietSeconds*r.o.rate)
		if err := r.publishedUntil(ctx, due); err != nil {
			return err
		}
		r.happen(ctx, d)
	}
	if err := r.publishedUntil(ctx, r.o.messages); err != nil {
		return err
	}
	r.over()
	if err := <-r.published; err != nil {
		return err
	}
	r.published <- nil // for stop
	if err := r.settle(ctx); err != nil {
		return err
	}
	for _, p := range r.sidecars {
		p.stop(20 * time.Second)
	}
	return r.drain()
}

// publishedUntil returns when n messages have been published, and holds the publisher while the sidecars are too far
// behind it: the messages that a fault has stopped must arrive before the next one.
func (r *queueRig) publishedUntil(ctx context.Context, n int) error {
	limit := r.o.patience + time.Duration(4*r.o.messages/r.o.rate)*time.Second
	return until(ctx, limit, fmt.Sprintf("message %d, and less than a second of messages in the queues", n), func() bool {
		waiting, err := r.waiting()
		r.publisher.Hold.Store(err == nil && waiting > backlog*r.o.rate)
		return r.publisher.Sent.Load() >= int64(n) && err == nil && waiting < r.o.rate
	})
}

// waiting counts the messages in all queues, and those that are unacked.
func (r *queueRig) waiting() (int, error) {
	var all []string
	for _, q := range r.run.Queues {
		all = append(all, q, strings.Replace(q, mainQueue, retryQueue, 1))
	}
	return r.node.total(all...)
}

// still is how long no queue may hold anything before all counts as settled: the broker counts the messages of a quorum
// queue every five seconds.
func (r *queueRig) still() time.Duration {
	if r.o.queueType == "quorum" {
		return 6 * time.Second
	}
	return calm
}

// settle waits until no queue holds anything.
func (r *queueRig) settle(ctx context.Context) error {
	var since time.Time
	err := until(ctx, r.o.patience, "everything to be settled", func() bool {
		if n, err := r.waiting(); err != nil || n > 0 {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		}
		return !since.IsZero() && time.Since(since) > r.still()
	})
	p := ledger.Probe{Name: "everything settled in the end", OK: err == nil, At: ledger.Now()}
	if err != nil {
		n, _ := r.waiting()
		p.Text = fmt.Sprintf("%v: %d messages are left", err, n)
	}
	return r.probes.Write(p)
}

// drain writes down what is in the queues.
func (r *queueRig) drain() error {
	for _, q := range r.run.Queues {
		for name, to := range map[string]*ledger.Writer{deadQueue: r.parked, mainQueue: r.residual, retryQueue: r.residual} {
			if err := r.empty(strings.Replace(q, mainQueue, name, 1), to); err != nil {
				return err
			}
		}
	}
	return nil
}

// empty takes every message out of a queue and writes it down. With retries that wait in the sidecar there is no retry
// queue.
func (r *queueRig) empty(queue string, to *ledger.Writer) error {
	return r.node.with(func(ch *amqp.Channel) error {
		state, err := depth.Of(ch, queue)
		if gone, is := errors.AsType[*amqp.Error](err); is && gone.Code == amqp.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		messages, err := ch.Consume(queue, "", true, false, false, false, nil) // a single active consumer allows no get
		if err != nil {
			return err
		}
		for range state.Messages {
			select {
			case d := <-messages:
				if err := to.Write(record(&d)); err != nil {
					return err
				}
			case <-time.After(10 * time.Second):
				return fmt.Errorf("%s gives less than its %d messages", queue, state.Messages)
			}
		}
		return nil
	})
}

// stop ends what runs, the sidecars first.
func (r *queueRig) stop() {
	for _, p := range r.sidecars {
		p.stop(20 * time.Second)
	}
	if r.over != nil {
		r.over()
		if err := <-r.published; err != nil {
			say("publisher: %v", err)
		}
	}
	if r.app != nil {
		r.app.stop(5 * time.Second)
	}
	for _, w := range r.wires {
		w.Close()
	}
	err := r.node.with(func(ch *amqp.Channel) error {
		var errs []error
		for _, q := range r.run.Queues {
			for _, name := range []string{mainQueue, retryQueue, deadQueue} {
				_, err := ch.QueueDelete(strings.Replace(q, mainQueue, name, 1), false, false, false)
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		say("the queues were not removed: %v", err)
	}
}
