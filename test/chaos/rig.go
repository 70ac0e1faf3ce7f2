package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/proxy"
	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
)

// The service, and what the default topology calls its objects.
const (
	service      = "chaos-app"
	mainExchange = "chaos.main-exchange"
	mainQueue    = "chaos.queue.chaos-app"
	retryQueue   = "chaos.retry-queue.chaos-app"
	deadQueue    = "chaos.dlq.chaos-app"
	brokerUser   = "chaos"
)

// rig is everything that runs: the broker behind a wire that breaks, the sidecar, the app and the publisher.
type rig struct {
	o     options
	run   ledger.Run
	dir   string
	node  *node // the first one
	nodes []*node
	wires []*proxy.Proxy // one for each node
	nth   int            // which node the last fault of a cluster was about

	db     *database    // nil: there is no outbox
	dbWire *proxy.Proxy // between it and the relays

	sidecar *process
	relay   *process // a second sidecar, for the outbox alone; may be nil
	second  *process // a second replica of the sidecar; may be nil
	app     *process
	appAddr string
	admin   string
	admins  []string // of all replicas
	control string
	client  http.Client

	publishAddr string // of the first sidecar
	supplies    []*supply

	publisher *exec.Cmd
	limits    io.WriteCloser
	extending sync.Mutex // guards limit, and the number of messages of the run
	limit     int
	ordered   int // messages of calibrate so far, which the schedule does not count
	published atomic.Int64

	receipts atomic.Int64               // lines of the app's ledger that are receipts
	lastSeen [plan.Sources]atomic.Int64 // when the last of them arrived, by source

	passwords int
	moving    sync.Mutex // one at a time empties the dead-letter queue

	faults, phases, parked, residual, redriven, exits, resources, probes, table *ledger.Writer
}

func newRig(o options, run ledger.Run, nodes []*node, db *database) (*rig, error) {
	r := &rig{o: o, run: run, dir: o.dir, node: nodes[0], nodes: nodes, db: db,
		client: http.Client{Timeout: 2 * time.Second}}
	for name, w := range map[string]**ledger.Writer{
		ledger.FaultFile: &r.faults, ledger.PhaseFile: &r.phases, ledger.ParkedFile: &r.parked,
		ledger.ResidualFile: &r.residual,
		ledger.RedriveFile:  &r.redriven, ledger.ExitFile: &r.exits, ledger.ResourceFile: &r.resources,
		ledger.ProbeFile: &r.probes,
		ledger.TableFile: &r.table,
	} {
		var err error
		if *w, err = ledger.Append(o.dir, name); err != nil {
			return nil, err
		}
	}
	for _, n := range nodes {
		w, err := proxy.Start(proxy.Options{Target: n.addr()})
		if err != nil {
			return nil, err
		}
		r.wires = append(r.wires, w)
	}
	if db != nil {
		var err error
		if r.dbWire, err = proxy.Start(proxy.Options{Target: db.addr()}); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// links are the wires to all nodes and to the database.
func (r *rig) links() []*proxy.Proxy {
	if r.dbWire == nil {
		return r.wires
	}
	return append(slices.Clone(r.wires), r.dbWire)
}

// shape changes what happens to the bytes between the sidecars and what they are connected to.
func (r *rig) shape(s proxy.Shape) {
	for _, w := range r.links() {
		w.Set(s)
	}
}

// cut resets every connection of the sidecars to brokers and database.
func (r *rig) cut() {
	for _, w := range r.links() {
		w.Cut()
	}
}

// nextNode is another node each time.
func (r *rig) nextNode() *node {
	r.nth++
	return r.nodes[r.nth%len(r.nodes)]
}

// urls are the addresses of all nodes, as the publisher has them.
func (r *rig) urls() string {
	var all []string
	for _, n := range r.nodes {
		all = append(all, n.url)
	}
	return strings.Join(all, ",")
}

// start brings everything up and waits until the sidecar consumes.
func (r *rig) start(ctx context.Context) error {
	password := r.nextPassword()
	if err := r.node.user(ctx, brokerUser, password); err != nil {
		return err
	}
	if err := r.putPassword(password); err != nil {
		return err
	}
	addrs := make([]string, 9) // five, and of a second replica another one and three
	for i := range addrs {
		var err error
		if addrs[i], err = proxy.FreeAddr(); err != nil {
			return err
		}
	}
	r.appAddr, r.admin, r.control, r.publishAddr = addrs[0], "http://"+addrs[1], "http://"+addrs[2], addrs[3]
	if err := r.prepare(ctx); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if r.app, err = keep(func() *exec.Cmd {
		return r.command("app.out", self, nil, "app", "-dir", r.dir, "-addr", r.appAddr)
	}, nil); err != nil {
		return err
	}
	environ := r.environ(addrs)
	r.admins = []string{r.admin}
	if r.sidecar, err = r.replica(ledger.SidecarFile, environ); err != nil {
		return err
	}
	if r.o.replicas > 1 {
		r.admins = append(r.admins, "http://"+addrs[6])
		if r.second, err = r.replica(ledger.SecondFile, r.environ(append(addrs[:1:1], addrs[6:]...))); err != nil {
			return err
		}
	}
	go r.follow(ctx)
	if err := until(ctx, 30*time.Second, "the sidecar to be ready", r.ready); err != nil {
		return err
	}
	if err := r.startRelay(ctx, r.amqpURLs(), addrs[4]); err != nil {
		return err
	}
	if err := r.startSupplies(ctx, self); err != nil {
		return err
	}
	return r.startPublisher(ctx, self)
}

// replica starts a sidecar of the service.
func (r *rig) replica(log string, environ []string) (*process, error) {
	return keep(func() *exec.Cmd { return r.command(log, r.o.sidecar, environ) },
		func(e ledger.Exit) { _ = r.exits.Write(e) })
}

func (r *rig) environ(addrs []string) []string {
	env := []string{
		"SIDECAR_SERVICE=" + service, "SIDECAR_AMQP_URL=" + r.amqpURLs(), "SIDECAR_AMQP_USERNAME=" + brokerUser,
		"SIDECAR_AMQP_PASSWORD_FILE=" + r.passwordFile(), "SIDECAR_APP_URL=http://" + r.appAddr + "/",
		"SIDECAR_ADMIN_ADDR=" + addrs[1], "SIDECAR_CONTROL_ADDR=" + addrs[2],
		"SIDECAR_TOPOLOGY=" + r.run.Topology, "SIDECAR_QUEUE_TYPE=" + r.run.QueueType,
		"SIDECAR_RETRY_DELAY=" + r.run.RetryDelay.String(),
		"SIDECAR_MAX_RETRIES=" + strconv.Itoa(r.run.MaxRetries), "SIDECAR_APP_TIMEOUT=" + r.run.AppTimeout.String(),
		"SIDECAR_CONCURRENCY=" + strconv.Itoa(r.run.Concurrency), "SIDECAR_PREFETCH=" + strconv.Itoa(r.run.Prefetch),
		"SIDECAR_REQUEUE_DELAY_MAX=" + (2 * r.run.RequeueDelay).String(),
		"SIDECAR_SHUTDOWN_GRACE=" + r.run.Grace.String(),
	}
	if r.run.Gather > 1 {
		env = append(env, "SIDECAR_BATCH_SIZE="+strconv.Itoa(r.run.Gather))
	}
	return append(append(env, r.outward(addrs[3])...), r.o.environ...)
}

func (r *rig) command(log, path string, environ []string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir}, environ...)
	if f, err := os.OpenFile(filepath.Join(r.dir, log), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		cmd.Stdout, cmd.Stderr = f, f
	}
	return cmd
}

// follow reads the app's ledger as it grows.
func (r *rig) follow(ctx context.Context) {
	var offset int64
	for ctx.Err() == nil {
		offset = r.read(offset)
		rest(ctx, 10*time.Millisecond)
	}
}

func (r *rig) read(offset int64) int64 {
	f, err := os.Open(filepath.Join(r.dir, ledger.AppFile))
	if err != nil {
		return offset
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.NewSectionReader(f, offset, 64<<20))
	if err != nil {
		return offset
	}
	end := bytes.LastIndexByte(text, '\n') + 1
	for line := range bytes.Lines(text[:end]) {
		if bytes.Contains(line, []byte(`"status":`)) {
			continue
		}
		var receipt ledger.Receipt
		if json.Unmarshal(line, &receipt) == nil {
			r.receipts.Add(1)
			if s, _ := plan.SourceOf(receipt.Seq); receipt.Seq >= 0 && s < plan.Sources {
				r.lastSeen[s].Store(receipt.At)
			}
		}
	}
	return offset + int64(end)
}

func (r *rig) ready() bool {
	text, err := r.get(r.admin + "/readyz")
	return err == nil && strings.Contains(text, "true") || err == nil && text == ""
}

func (r *rig) get(url string) (string, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(text), err
}

// post asks the control listener for something.
func (r *rig) post(path string) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, r.control+path, nil)
	if err != nil {
		return err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode > 299 {
		err = fmt.Errorf("POST %s: %s", path, resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}

// metric is the sum of a metric of the sidecar over its labels, of which name may hold the first ones; -1 when it
// cannot be read.
func (r *rig) metric(name string) float64 { return r.metricOf(r.admin, name) }

func (r *rig) metricOf(admin, name string) float64 {
	text, err := r.get(admin + "/metrics")
	if err != nil {
		return -1
	}
	sum := 0.0
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok && strings.ContainsRune(" {,", rune(rest[0])) {
			f := strings.Fields(rest)
			n, err := strconv.ParseFloat(f[len(f)-1], 64)
			if err != nil {
				return -1
			}
			sum += n
		}
	}
	return sum
}

func (r *rig) passwordFile() string { return filepath.Join(r.dir, "password") }

// nextPassword is a canary: it must turn up in no log.
func (r *rig) nextPassword() string {
	r.passwords++
	return fmt.Sprintf("%s-%d", r.run.Secrets[canaryPassword], r.passwords)
}

// putPassword replaces the file as Kubernetes does: never half written.
func (r *rig) putPassword(password string) error {
	next := r.passwordFile() + ".next"
	if err := os.WriteFile(next, []byte(password), 0o600); err != nil {
		return err
	}
	return os.Rename(next, r.passwordFile())
}

// stop ends what runs, the sidecar first.
func (r *rig) stop() {
	for _, p := range []*process{r.sidecar, r.second} {
		if p != nil {
			p.stop(20 * time.Second)
		}
	}
	if r.relay != nil {
		r.relay.stop(20 * time.Second)
	}
	if r.limits != nil {
		_ = r.limits.Close()
		_ = r.publisher.Wait()
	}
	for _, u := range r.supplies {
		u.stop()
		r.count(u)
	}
	if r.app != nil {
		r.app.stop(5 * time.Second)
	}
	for _, w := range r.links() {
		w.Close()
	}
	_ = os.Remove(r.passwordFile())
	_ = r.node.ctl("delete_user", brokerUser)
	_ = r.node.with(func(ch *amqp.Channel) error {
		for _, q := range []string{mainQueue, retryQueue, deadQueue, "relay.queue." + secondService, "relay.retry-queue." +
			secondService, "relay.dlq." + secondService} {
			_, _ = ch.QueueDelete(q, false, false, false)
		}
		for _, x := range []string{mainExchange, "chaos.retry-exchange.chaos-app", "relay.main-exchange",
			"relay.retry-exchange." + secondService, lonelyExchange} {
			_ = ch.ExchangeDelete(x, false, false)
		}
		return nil
	})
}
