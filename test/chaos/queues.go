package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/queues"
)

// queueOptions of a storm over several queues.
type queueOptions struct {
	dir, sidecar, script string
	seed                 uint64
	queues, keys         int
	messages, faults     int
	kinds                string
	queueType            string
	replicas             int
	ordered              int
	rate                 int
	concurrency          int
	prefetch             int
	within               time.Duration
	patience             time.Duration
	environ              []string
	temporary            bool // dir is kept only when something is wrong
}

func parseQueues(args []string) (queueOptions, error) {
	o := queueOptions{}
	f := flag.NewFlagSet("chaos queues", flag.ContinueOnError)
	f.StringVar(&o.dir, "dir", "", "directory for the ledgers; default a temporary one")
	f.StringVar(&o.sidecar, "sidecar", "bin/sidecar", "the binary to try")
	f.StringVar(&o.script, "broker", "scripts/broker.sh", "the script that kills and starts the broker")
	f.Uint64Var(&o.seed, "seed", 0, "of plans and faults; 0 draws one")
	f.IntVar(&o.queues, "queues", 7, "subscriptions; 0 is one without a name")
	f.IntVar(&o.keys, "keys", 100, "of each queue")
	f.IntVar(&o.messages, "messages", 20000, "at least, of all queues together")
	f.IntVar(&o.faults, "faults", 20, "faults, evenly among the messages")
	f.StringVar(&o.kinds, "kinds", "", "kinds of faults, each as often as the others; default all that fit")
	f.StringVar(&o.queueType, "queue-type", "quorum", "classic or quorum")
	f.IntVar(&o.replicas, "replicas", 1, "sidecars")
	f.IntVar(&o.ordered, "ordered", 0, "so many of the queues have SIDECAR_ORDER_BY=header:key")
	f.IntVar(&o.rate, "rate", 350, "messages per second, of all queues together")
	f.IntVar(&o.concurrency, "concurrency", 10, "SIDECAR_CONCURRENCY")
	f.IntVar(&o.prefetch, "prefetch", 50, "SIDECAR_PREFETCH")
	f.DurationVar(&o.within, "within", time.Second, "a message has to arrive, unless a fault concerns its own queue")
	f.DurationVar(&o.patience, "patience", 3*time.Minute, "how long everything may take to be settled")
	f.Func("env", "another variable of the sidecar, NAME=VALUE",
		func(s string) error { o.environ = append(o.environ, s); return nil })
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.keys < 1 || o.messages < 1 || o.faults < 0 || o.rate < 1 || o.queues < 0 || o.replicas < 1 {
		return o, errors.New("-keys, -messages, -rate and -replicas are 1 or more, -faults and -queues 0 or more")
	}
	for kind := range strings.SplitSeq(o.kinds, ",") {
		if kind != "" && queueFaultOf(kind).kind == "" {
			return o, fmt.Errorf("-kinds: no fault %q", kind)
		}
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	var err error
	if o.dir == "" {
		o.temporary = true
		if o.dir, err = os.MkdirTemp("", "sidecar-queues-"); err != nil {
			return o, err
		}
	}
	if o.dir, err = filepath.Abs(o.dir); err == nil {
		o.sidecar, err = filepath.Abs(o.sidecar)
	}
	return o, errors.Join(err, os.MkdirAll(o.dir, 0o700))
}

// names returns the subscriptions, and the queues of the broker that belong to them.
func (o *queueOptions) names() (names, broker []string) {
	if o.queues == 0 {
		return []string{""}, []string{mainQueue}
	}
	for i := range o.queues {
		names = append(names, fmt.Sprintf("q%d", i))
		broker = append(broker, mainQueue+"."+names[i])
	}
	return names, broker
}

func (o *queueOptions) replay(version string) string {
	var more strings.Builder
	for _, e := range o.environ {
		_, _ = fmt.Fprintf(&more, " -env %q", e)
	}
	return fmt.Sprintf("TEST_BROKER_VERSION=%s scripts/chaos.sh queues -seed %d -queues %d -keys %d -messages %d "+
		"-faults %d -kinds %q -queue-type %s -replicas %d -ordered %d -rate %d -concurrency %d -prefetch %d%s", version,
		o.seed, o.queues, o.keys, o.messages, o.faults, o.kinds, o.queueType, o.replicas, o.ordered, o.rate, o.concurrency,
		o.prefetch, more.String())
}

// runQueues is a whole storm over several queues.
func runQueues(args []string) error {
	o, err := parseQueues(args)
	if err != nil {
		return err
	}
	nodes, err := nodesFromEnvironment(o.script)
	if err != nil {
		return err
	}
	id := make([]byte, 4)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	names, broker := o.names()
	run := queues.Run{
		ID: hex.EncodeToString(id), Seed: o.seed, Names: names, Queues: broker, Keys: o.keys, Ordered: o.ordered,
		Prefetch: o.prefetch, MaxRetries: 5, RetryDelay: 300 * time.Millisecond, AppTimeout: 2 * time.Second,
		Within: o.within, Replay: o.replay(nodes[0].branch()),
	}
	if err := ledger.WriteJSON(o.dir, ledger.RunFile, run); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	say("seed %d, %d queues, %s, RabbitMQ %s, ledgers in %s", o.seed, len(broker), o.queueType, nodes[0].version, o.dir)
	r, err := newQueueRig(o, run, nodes[0])
	if err != nil {
		return err
	}
	err = r.start(ctx)
	if err == nil {
		err = r.drive(ctx)
	}
	r.stop()
	if err == nil {
		err = queueVerdict(o.dir)
	}
	if o.temporary && !errors.Is(err, errBroken) {
		return errors.Join(err, os.RemoveAll(o.dir))
	}
	return err
}

// queueVerdict judges the run in dir and prints the report.
func queueVerdict(dir string) error {
	v, page, err := queues.Judge(dir)
	if err != nil {
		return err
	}
	_, _ = fmt.Print(page)
	if err := ledger.WriteJSON(dir, ledger.ReportFile, v); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, ledger.ReportPage), []byte(page), 0o600); err != nil {
		return err
	}
	if !v.OK() {
		return fmt.Errorf("%w: %s; ledgers in %s", errBroken, strings.Join(v.Broken(), ", "), dir)
	}
	return nil
}

func serveQueues(args []string) error {
	f := flag.NewFlagSet("chaos queues-app", flag.ContinueOnError)
	dir, addr := f.String("dir", ".", "directory of the ledgers"), f.String("addr", "127.0.0.1:8080", "where to listen")
	if err := f.Parse(args); err != nil {
		return err
	}
	return queues.Serve(*dir, *addr)
}

// judgeQueues judges a run again.
func judgeQueues(args []string) error {
	f := flag.NewFlagSet("chaos queues-judge", flag.ContinueOnError)
	dir := f.String("dir", ".", "directory with the ledgers")
	if err := f.Parse(args); err != nil {
		return err
	}
	return queueVerdict(*dir)
}
