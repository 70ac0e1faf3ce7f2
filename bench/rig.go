package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The service of the benchmark and what its queues are called by the default topology.
const (
	service    = "bench-app"
	mainQueue  = "bench.queue.bench-app"
	retryQueue = "bench.retry-queue.bench-app"
	deadQueue  = "bench.dlq.bench-app"
)

// rig is what all runs share: the broker, the app, the binaries.
type rig struct {
	ctx       context.Context // ends when the benchmark is asked to stop, and takes every child along
	patience  time.Duration   // how long nothing may move before a wait is given up
	silence   time.Duration   // how long nothing may arrive before the rest counts as lost
	url       string          // of the broker
	version   string          // of the broker
	filled    time.Duration   // pause for the prefetch window to fill once all workers have a message
	settled   time.Duration   // pause for the last acks to reach the broker
	rest      time.Duration   // pause for what a connected relay does before it is idle
	brokerPID int             // 0: unknown, and so is its CPU time
	dir       string          // temporary
	tools     string          // directory of the programs of buildTools
	app       *process
	appData   string // host:port
	control   string // http://host:port
	client    http.Client
	conn      *amqp.Connection
	ch        *amqp.Channel
	extra     []string  // more environment for the sidecars
	db        *database // nil unless a scenario needs it
}

// process is a child with its output in a file.
type process struct {
	cmd   *exec.Cmd
	log   string
	out   io.ReadCloser // standard output, when it was asked for
	ended chan struct{} // closed once err says how it ended
	err   error
}

func (r *rig) start(name, path string, pipe bool, env ...string) (*process, error) {
	log, err := os.CreateTemp(r.dir, name+"-*.log")
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	p := &process{cmd: exec.CommandContext(r.ctx, path), log: log.Name(), ended: make(chan struct{})}
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir}, env...)
	p.cmd.Stderr = log
	p.cmd.Stdout = log
	if pipe {
		p.cmd.Stdout = nil
		if p.out, err = p.cmd.StdoutPipe(); err != nil {
			return nil, err
		}
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop ends the process as its platform would and returns what it says about that.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		if p.err != nil {
			return fmt.Errorf("%w\n%s", p.err, p.tail())
		}
		return nil
	case <-time.After(time.Minute):
		p.kill()
		return fmt.Errorf("did not end within a minute of SIGTERM\n%s", p.tail())
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// tail is the end of what the process wrote.
func (p *process) tail() string {
	b, _ := os.ReadFile(p.log)
	return string(b[max(0, len(b)-2000):])
}

func newRig(ctx context.Context, o *options) (_ *rig, err error) {
	r := &rig{
		ctx: ctx, patience: 30 * time.Second, silence: 30 * time.Second, filled: 300 * time.Millisecond,
		settled: 300 * time.Millisecond, rest: time.Second, client: http.Client{Transport: &http.Transport{}},
		url: o.amqpURL, extra: o.env,
	}
	if r.url == "" {
		return nil, errors.New("AMQP_URL is unset: run it below scripts/broker.sh, as make bench does")
	}
	if r.brokerPID, err = serverPID(ctx, os.Getenv("BROKER_DIR")); err != nil {
		return nil, err
	}
	if r.dir, err = os.MkdirTemp("", "sidecar-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.tools = o.tools; r.tools == "" {
		r.tools = r.dir
		if err := buildTools(ctx, r.tools); err != nil {
			return nil, err
		}
	}
	if r.app, err = r.start("app", filepath.Join(r.tools, "app"), true, "APP_SOCKET="+r.socket()); err != nil {
		return nil, err
	}
	var ports struct{ Data, Control string }
	if err := json.NewDecoder(r.app.out).Decode(&ports); err != nil {
		return nil, fmt.Errorf("the app did not start: %w", err)
	}
	r.appData, r.control = ports.Data, "http://"+ports.Control
	if r.conn, err = amqp.Dial(r.url); err != nil {
		return nil, err
	}
	r.version, _ = r.conn.Properties["version"].(string)
	if r.ch, err = r.conn.Channel(); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(names(""), func(name string) bool {
		return strings.HasPrefix(name, "outbox") && (len(o.only) == 0 || slices.Contains(o.only, name))
	}) {
		if r.db, err = openDatabase(ctx, o.dsn); err != nil {
			return nil, err
		}
		if err := r.migrate(o.sidecar); err != nil {
			return nil, err
		}
	}
	return r, r.ch.Confirm(false)
}

// buildTools builds the programs that a benchmark runs besides the sidecar into dir.
func buildTools(ctx context.Context, dir string) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", dir+string(filepath.Separator))
	for _, name := range []string{"app", "baseline", "profile", "client", "publisher", "relay"} {
		build.Args = append(build.Args, "sidecar/bench/"+name)
	}
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", build, err, out)
	}
	return nil
}

// socket is the path of the app's Unix socket.
func (r *rig) socket() string { return filepath.Join(r.dir, "app.sock") }

func (r *rig) close() {
	if r.conn != nil {
		_ = r.conn.Close()
	}
	if r.db != nil {
		_ = r.db.conn.Close(context.Background())
	}
	if r.app != nil {
		r.app.kill()
	}
	_ = os.RemoveAll(r.dir)
}

// ask calls the app's control listener; in and out may be nil.
func (r *rig) ask(method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(r.ctx, method, r.control+path, body)
	if err != nil {
		return err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		if resp.StatusCode == http.StatusGatewayTimeout {
			return fmt.Errorf("%w: %s", errNotYet, bytes.TrimSpace(text))
		}
		return fmt.Errorf("the app says %s: %s", path, bytes.TrimSpace(text))
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// errNotYet is the end of a wait's patience.
var errNotYet = errors.New("not yet")

// waitFor returns when the app has received that many messages and that many are in flight, or errNotYet.
func (r *rig) waitFor(received, inflight int, patience time.Duration) error {
	return r.ask("POST", "/wait", map[string]any{"received": received, "inflight": inflight, "timeout": patience}, nil)
}

// waitReceived returns when the app has received n messages from p, or when no more come: what is missing then is for
// the ledger to say.
func (r *rig) waitReceived(p *process, n int) error {
	for before := int64(-1); ; {
		if err := r.waitFor(n, 0, r.silence); !errors.Is(err, errNotYet) {
			return err
		}
		select {
		case <-p.ended:
			return fmt.Errorf("ended by itself: %w", errors.Join(errors.New("not asked to"), p.err))
		default:
		}
		s, err := r.stats()
		if err != nil || s.Received == before {
			return err
		}
		before = s.Received
	}
}

// pause waits unless the benchmark is asked to stop.
func (r *rig) pause(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// appPlan configures the app before a run.
type appPlan struct {
	Expect   int           `json:"expect"`
	Sleep    time.Duration `json:"sleep"`
	Hold     bool          `json:"hold"`
	Latency  bool          `json:"latency"`
	Failures int           `json:"failures"`
	Item     string        `json:"item"`
}

// appStats is what the app says after it.
type appStats struct {
	Received    int64   `json:"received"`
	Distinct    int64   `json:"distinct"`
	Unknown     int64   `json:"unknown"`
	Connections int64   `json:"connections"`
	MaxInflight int64   `json:"max_inflight"`
	Released    int64   `json:"released"`
	Held        int64   `json:"held"`
	First       int64   `json:"first"`
	Last        int64   `json:"last"`
	Latencies   []int64 `json:"latencies,omitempty"`
}

func (r *rig) stats() (s appStats, err error) {
	err = r.ask("GET", "/stats", nil, &s)
	return s, err
}

// load is what is put into the queue and how the app treats it.
type load struct {
	Messages    int           `json:"messages"`
	Body        int           `json:"body_bytes"`
	Headers     int           `json:"headers"`
	Concurrency int           `json:"concurrency"`
	Sleep       time.Duration `json:"app_sleep_ns"`
	Keys        int           `json:"keys,omitempty"`     // of the header "key"
	Failures    int           `json:"failures,omitempty"` // of each message, before the attempt that succeeds
	Batch       int           `json:"batch,omitempty"`    // messages of one request at most; 0: one
	Item        string        `json:"item,omitempty"`     // a request of a batch has it once for each message
	JSON        bool          `json:"json,omitempty"`     // bodies are objects
}

// message is the i-th message of a load.
func (l load) message(i int) amqp.Publishing {
	m := amqp.Publishing{
		DeliveryMode: amqp.Persistent, ContentType: "application/octet-stream", MessageId: strconv.Itoa(i),
		Body: bytes.Repeat([]byte{'x'}, l.Body),
	}
	if l.JSON {
		m.ContentType = "application/json"
		copy(m.Body, fmt.Sprintf(`{"id":%d,"x":"`, i))
		copy(m.Body[l.Body-len(`"}`):], `"}`)
	}
	if l.Keys > 0 {
		m.Headers = amqp.Table{"key": strconv.Itoa(i % l.Keys)}
	}
	if l.Headers > 0 {
		m.Headers = make(amqp.Table, l.Headers)
		for h := range l.Headers {
			m.Headers[fmt.Sprintf("x-h-%02d", h)] = fmt.Sprintf("value-%02d-of-%d", h, i%10)
		}
	}
	return m
}

// headerBytes is how large the headers of a load's messages are, names and values.
func (l load) headerBytes() (n int) {
	for k, v := range l.message(0).Headers {
		text, _ := v.(string)
		n += len(k) + len(text)
	}
	return n
}

// fill purges the queue and publishes the load, confirmed.
func (r *rig) fill(l load) error {
	for _, q := range []string{mainQueue, retryQueue, deadQueue} {
		if _, err := r.ch.QueuePurge(q, false); err != nil {
			return err
		}
	}
	return r.put(mainQueue, l, 0, l.Messages)
}

// put publishes the messages of a load from one to another, without that one, confirmed.
func (r *rig) put(queue string, l load, from, to int) error {
	const window = 500
	var waiting []*amqp.DeferredConfirmation
	for i := from; i < to; i++ {
		c, err := r.ch.PublishWithDeferredConfirm("", queue, true, false, l.message(i))
		if err != nil {
			return err
		}
		if waiting = append(waiting, c); len(waiting) < window && i+1 < to {
			continue
		}
		for _, c := range waiting {
			if ok, err := c.WaitContext(r.ctx); err != nil || !ok {
				return errors.Join(errors.New("a message was not confirmed"), err)
			}
		}
		waiting = waiting[:0]
	}
	return nil
}

// left counts what is in the queues when no consumer is left. The broker may take a moment to give back what a
// candidate that has gone left unacked, so it is the same three times in a row.
func (r *rig) left() (n map[string]int, err error) {
	var last map[string]int
	for same := 0; same < 3; {
		if n, err = r.ready(); err != nil {
			return nil, err
		}
		if same++; !maps.Equal(n, last) {
			last, same = n, 1
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-r.ctx.Done():
			return nil, context.Cause(r.ctx)
		}
	}
	return n, nil
}

// ready counts what is ready in the queues.
func (r *rig) ready() (map[string]int, error) {
	n := map[string]int{}
	for _, q := range []string{mainQueue, retryQueue, deadQueue} {
		s, err := r.ch.QueueDeclarePassive(q, true, false, false, false, nil)
		if err != nil {
			return nil, fmt.Errorf("queue %s: %w", q, err)
		}
		n[strings.TrimSuffix(strings.TrimPrefix(q, "bench."), "."+service)] = s.Messages
	}
	return n, nil
}
