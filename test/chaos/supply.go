package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
	"sidecar/test/chaos/post"
	"sidecar/test/chaos/source"
)

// relayBatch is how many rows a relay publishes in one transaction at most.
const relayBatch = 500

// lonelyExchange has no bindings.
const lonelyExchange = "chaos.lonely"

// supply is a source beside the publisher at the broker. It keeps pace with that.
type supply struct {
	source plan.Source
	total  int // messages that it is to have when the publisher has all of its own
	done   atomic.Int64

	in    io.WriteCloser
	ended chan struct{}
	err   error // why it ended

	mu    sync.Mutex
	limit int
	extra int // messages of unroutable so far, which the total does not count
}

func (r *rig) supply(ctx context.Context, s plan.Source, total int, self, command, where string) error {
	if total == 0 {
		return nil
	}
	rate := max(1, r.o.rate*total/r.o.messages)
	cmd := exec.CommandContext(ctx, self, command, "-dir", r.dir, "-url", where, "-rate", strconv.Itoa(rate))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	u := &supply{source: s, total: total, in: in, ended: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(u.ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			if n, err := strconv.ParseInt(s.Text(), 10, 64); err == nil {
				u.done.Store(n)
			}
		}
		u.err = cmd.Wait()
	}()
	r.supplies = append(r.supplies, u)
	return nil
}

// allow lets it go on up to n messages of its total.
func (u *supply) allow(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n += u.extra; n > u.limit {
		u.limit = n
		_, _ = fmt.Fprintln(u.in, n)
	}
}

// unroutable makes it send n messages at once that no queue takes.
func (u *supply) unroutable(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.limit, u.extra = u.limit+n, u.extra+n
	_, _ = fmt.Fprintln(u.in, u.limit, source.AtOnce)
}

// more lets it make n messages more than so far.
func (u *supply) more(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.limit += n
	_, _ = fmt.Fprintln(u.in, u.limit)
}

func (u *supply) allowed() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.limit
}

func (u *supply) idle() bool { return int(u.done.Load()) >= u.allowed() }

// failed is an error when it has ended although it was not asked to.
func (u *supply) failed() error {
	select {
	case <-u.ended:
		return fmt.Errorf("the source %s ended by itself: %w", u.source, u.err)
	default:
		return nil
	}
}

func (u *supply) stop() {
	_ = u.in.Close()
	<-u.ended
}

// count takes what a supply has come to into the description of the run.
func (r *rig) count(u *supply) {
	if u.source == plan.HTTP {
		r.run.HTTP = u.allowed()
	} else {
		r.run.Outbox = u.allowed()
	}
}

// keepPace lets the supplies come as far as the publisher is with n of its planned messages.
func (r *rig) keepPace(n int) {
	planned := r.run.WarmUp + r.o.messages
	for _, u := range r.supplies {
		u.allow(u.total * min(n, planned) / planned)
	}
}

// supplied reports whether no supply has anything to do, or one cannot go on.
func (r *rig) supplied() bool {
	for _, u := range r.supplies {
		if !u.idle() && u.failed() == nil {
			return false
		}
	}
	return true
}

// unroutable makes the client of the publish listener send n messages at once that no queue takes.
func (r *rig) unroutable(n int) error {
	for _, u := range r.supplies {
		if u.source == plan.HTTP {
			u.unroutable(n)
			return nil
		}
	}
	return errors.New("no client POSTs messages in this run")
}

// trickle lets one more message of a source come.
func (r *rig) trickle(s plan.Source) {
	if s == plan.AMQP {
		if r.idle() {
			r.extra(1, "")
		}
		return
	}
	for _, u := range r.supplies {
		if u.source == s && u.idle() {
			u.more(1)
		}
	}
}

// startSupplies starts the sources beside the publisher.
func (r *rig) startSupplies(ctx context.Context, self string) error {
	if err := r.supply(ctx, plan.HTTP, r.run.HTTP, self, "post", "http://"+r.publishAddr); err != nil {
		return err
	}
	if r.db == nil {
		return nil
	}
	return r.supply(ctx, plan.Outbox, r.run.Outbox, self, "rows", r.db.dsn)
}

// outward are the variables of a sidecar that takes messages as well: by POST at an address, unless that is empty, and
// from the outbox.
func (r *rig) outward(addr string) []string {
	exchanges := []string{"default=" + mainExchange, post.Lonely + "=" + lonelyExchange, post.Gone + "=chaos.gone"}
	env := []string{"SIDECAR_PUBLISH_EXCHANGES=" + strings.Join(exchanges, ",")}
	if r.run.HTTP > 0 && addr != "" {
		env = append(env, "SIDECAR_PUBLISH_ADDR="+addr, "SIDECAR_PUBLISH_TOKEN="+r.run.Secrets[canaryToken],
			"SIDECAR_MAX_BODY="+strconv.Itoa(post.MaxBody), "SIDECAR_PUBLISH_TIMEOUT=6s")
	}
	if r.db != nil {
		env = append(env, "SIDECAR_OUTBOX_DSN="+r.db.behind(r.dbWire.Addr(), r.run.Secrets[canaryDatabase]))
	}
	return env
}

// migrate makes the table, by the sidecar's own command. What a run before has left there would be sent in this one.
func (r *rig) migrate(ctx context.Context) error {
	if err := r.db.query(ctx, "DROP TABLE IF EXISTS outbox", func([][]byte) error { return nil }); err != nil {
		return err
	}
	cmd := exec.Command(r.o.sidecar, "outbox", "migrate")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "SIDECAR_SERVICE=" + service}, r.outward("")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("sidecar outbox migrate: %w: %s", err, out)
	}
	return nil
}

// prepare makes what the other sources need.
func (r *rig) prepare(ctx context.Context) error {
	if r.db != nil {
		if err := r.migrate(ctx); err != nil {
			return err
		}
	}
	return r.node.with(func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(lonelyExchange, amqp.ExchangeFanout, true, false, false, false, nil)
	})
}

// secondService has a queue and an exchange of its own, and relays the same outbox. Nothing comes to its queue: who
// consumes is the first sidecar alone.
const secondService = "relay-second"

// startRelay starts the second sidecar.
func (r *rig) startRelay(ctx context.Context, amqpURLs, admin string) error {
	if r.db == nil || r.run.Relays < 2 {
		return nil
	}
	env := append([]string{
		"SIDECAR_SERVICE=" + secondService, "SIDECAR_AMQP_URL=" + amqpURLs, "SIDECAR_AMQP_USERNAME=" + brokerUser,
		"SIDECAR_AMQP_PASSWORD_FILE=" + r.passwordFile(), "SIDECAR_APP_URL=http://" + r.appAddr + "/",
		"SIDECAR_ADMIN_ADDR=" + admin,
		"SIDECAR_CONTROL_ADDR=127.0.0.1:0", "SIDECAR_QUEUE_TYPE=" + r.run.QueueType, "SIDECAR_SHUTDOWN_GRACE=" +
			r.run.Grace.String(),
		"SIDECAR_APP_TIMEOUT=" + r.run.AppTimeout.String(),
	}, r.outward("")...)
	env = append(env, r.o.environ...)
	var err error
	r.relay, err = keep(func() *exec.Cmd { return r.command(ledger.RelayFile, r.o.sidecar, env) },
		func(e ledger.Exit) { _ = r.exits.Write(e) })
	if err != nil {
		return err
	}
	return until(ctx, 30*time.Second, "the second sidecar to be ready", func() bool {
		_, err := r.get("http://" + admin + "/readyz")
		return err == nil
	})
}

// amqpURLs is how sidecars reach the nodes.
func (r *rig) amqpURLs() string {
	var urls []string
	for _, w := range r.wires {
		u := url.URL{Scheme: "amqp", Host: w.Addr(), Path: "/"}
		urls = append(urls, u.String())
	}
	return strings.Join(urls, ",")
}
