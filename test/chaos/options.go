package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/source"
)

// options of a run.
type options struct {
	dir         string
	page        string
	sidecar     string
	script      string
	seed        uint64
	messages    int
	warmUp      int
	liveness    int
	faults      int
	kinds       string
	without     string
	queueType   string
	topology    string
	retries     int
	replicas    int
	delay       time.Duration
	concurrency int
	prefetch    int
	rate        int
	never       int
	gather      int // messages of a request to the app
	spoiled     int
	stretch     float64
	patience    time.Duration
	appTimeout  time.Duration
	outbox      int  // rows to be committed
	rollback    int  // and to be rolled back
	posts       int  // messages POSTed to the sidecar
	batches     int  // of a hundred POSTs
	relays      int  // sidecars that relay
	cluster     bool // of several nodes
	temporary   bool // dir is kept only when something is wrong
	environ     []string
}

func parse(args []string) (options, error) {
	o := options{}
	f := flag.NewFlagSet("chaos run", flag.ContinueOnError)
	f.StringVar(&o.dir, "dir", "", "directory for the ledgers; default a temporary one")
	f.StringVar(&o.page, "page", "", "another file to write the report to")
	f.StringVar(&o.sidecar, "sidecar", "bin/sidecar", "the binary to try")
	f.StringVar(&o.script, "broker", "scripts/broker.sh", "the script that kills and starts the broker")
	f.Uint64Var(&o.seed, "seed", 0, "of plans and faults; 0 draws one")
	f.IntVar(&o.messages, "messages", 20000, "messages while things break")
	f.IntVar(&o.warmUp, "warm-up", 3000, "messages before")
	f.IntVar(&o.liveness, "liveness", 1000, "messages afterwards")
	f.IntVar(&o.outbox, "outbox", 4000, "rows of the outbox that are committed, more or less")
	f.IntVar(&o.rollback, "rollback", 400, "and rolled back")
	f.IntVar(&o.posts, "publish", 2000, "messages that are POSTed to the sidecar")
	f.IntVar(&o.batches, "batches", 5, "how many of a hundred POSTs are batches")
	f.IntVar(&o.relays, "relays", 2, "sidecars that relay the outbox, 1 or 2")
	f.IntVar(&o.faults, "faults", 31, "faults")
	f.StringVar(&o.kinds, "kinds", strings.Join(allKinds(), ","), "kinds of faults to draw from")
	f.StringVar(&o.without, "without", "", "kinds of faults to leave out")
	f.StringVar(&o.queueType, "queue-type", "quorum", "classic or quorum")
	f.StringVar(&o.topology, "topology", "fanout", "SIDECAR_TOPOLOGY: "+
		strings.Join(slices.Sorted(maps.Keys(topologies)), " or "))
	f.IntVar(&o.replicas, "replicas", 1, "sidecars of the service, 1 or 2")
	f.IntVar(&o.retries, "max-retries", 10, "SIDECAR_MAX_RETRIES")
	f.DurationVar(&o.delay, "retry-delay", 300*time.Millisecond, "SIDECAR_RETRY_DELAY")
	f.IntVar(&o.concurrency, "concurrency", 16, "SIDECAR_CONCURRENCY")
	f.IntVar(&o.prefetch, "prefetch", 0, "SIDECAR_PREFETCH; default twice the messages of all requests")
	f.IntVar(&o.rate, "rate", 500, "messages published per second at most; what is POSTed and the rows keep pace")
	f.IntVar(&o.never, "never", 0, "how many more of a hundred messages fail for ever")
	f.IntVar(&o.gather, "gather", 1, "SIDECAR_BATCH_SIZE")
	f.IntVar(&o.spoiled, "spoiled", 5, "how many of a hundred requests of several messages fail as a whole")
	f.Float64Var(&o.stretch, "stretch", 1, "how much longer than usual faults last that last at all")
	f.DurationVar(&o.appTimeout, "app-timeout", 2*time.Second, "SIDECAR_APP_TIMEOUT")
	f.DurationVar(&o.patience, "patience", 0, "how long everything may take to be settled; default 3m and the time "+
		"spent on answers that never come")
	f.Func("env", "another variable of the sidecar, NAME=VALUE",
		func(s string) error { o.environ = append(o.environ, s); return nil })
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if err := o.check(); err != nil {
		return o, err
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	if o.prefetch == 0 {
		o.prefetch = 2 * o.concurrency * o.gather
	}
	if o.patience == 0 { // one message in a hundred meets an app that does not answer
		o.patience = 3*time.Minute + time.Duration((o.messages+o.posts+o.rows())/100/o.concurrency)*o.appTimeout
	}
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "sidecar-chaos-")
		if err != nil {
			return o, err
		}
		o.dir, o.temporary = dir, true
	}
	var err error
	if o.dir, err = filepath.Abs(o.dir); err == nil {
		o.sidecar, err = filepath.Abs(o.sidecar)
	}
	return o, errors.Join(err, os.MkdirAll(o.dir, 0o700))
}

// rows of the outbox, those that are rolled back too.
func (o options) rows() int { return o.outbox + o.rollback }

// together is how many messages per second all sources make.
func (o options) together() int { return o.rate * (o.messages + o.posts + o.rows()) / o.messages }

// Canaries, by their place in the secrets of a run.
const (
	canaryBody = iota
	canaryPassword
	canaryToken
	canaryDatabase
)

// check refuses what would make another run than the one that was asked for.
func (o options) check() error {
	for name, n := range map[string]int{"messages": o.messages, "concurrency": o.concurrency, "rate": o.rate,
		"gather": o.gather} {
		if n < 1 {
			return fmt.Errorf("-%s %d: 1 or more", name, n)
		}
	}
	for name, n := range map[string]int{"warm-up": o.warmUp, "liveness": o.liveness, "faults": o.faults,
		"prefetch": o.prefetch, "never": o.never, "spoiled": o.spoiled,
		"outbox": o.outbox, "rollback": o.rollback, "publish": o.posts, "batches": o.batches} {
		if n < 0 {
			return fmt.Errorf("-%s %d: 0 or more", name, n)
		}
	}
	if o.relays != 1 && o.relays != 2 || o.replicas != 1 && o.replicas != 2 {
		return fmt.Errorf("-relays %d -replicas %d: 1 or 2", o.relays, o.replicas)
	}
	if o.stretch <= 0 {
		return fmt.Errorf("-stretch %v: more than 0", o.stretch)
	}
	if t, ok := topologies[o.topology]; !ok || t.quorum && o.queueType != "quorum" {
		return fmt.Errorf("-topology %s -queue-type %s: no such topology, or it needs quorum queues", o.topology, o.queueType)
	}
	if o.retries <= source.Failures || o.delay < 100*time.Millisecond {
		return fmt.Errorf("-max-retries %d -retry-delay %v: more than %d, and 100ms or more", o.retries, o.delay,
			source.Failures)
	}
	if o.queueType != "classic" && o.queueType != "quorum" {
		return fmt.Errorf("-queue-type %s: classic or quorum", o.queueType)
	}
	for kind := range strings.SplitSeq(o.kinds+","+o.without, ",") {
		if kind != "" && byKind(kind).kind == "" {
			return fmt.Errorf("-kinds or -without: %s is none of %s", kind, strings.Join(allKinds(), ", "))
		}
	}
	return nil
}

// chosen are the kinds that may be drawn. Classic queues lose what is in retry transit when their broker is killed:
// that is only done when it was asked for.
func (o options) chosen() []string {
	leave := strings.Split(o.without, ",")
	if o.queueType == "classic" && o.kinds == strings.Join(allKinds(), ",") {
		leave = append(leave, "broker-kill")
	}
	if o.cluster {
		leave = append(leave, single...)
	} else {
		leave = append(leave, clustered...)
	}
	if o.rows() == 0 {
		leave = append(leave, relaying...)
	}
	if o.posts == 0 {
		leave = append(leave, freezeReturns)
	}
	if o.replicas > 1 {
		leave = append(leave, "dlq-delete") // it pauses what parks
	}
	if o.relays < 2 {
		leave = append(leave, second...)
	}
	var kinds []string
	for kind := range strings.SplitSeq(o.kinds, ",") {
		if !slices.Contains(leave, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

func describe(o options, n *node) (ledger.Run, error) {
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		return ledger.Run{}, err
	}
	binary, err := os.ReadFile(o.sidecar)
	if err != nil {
		return ledger.Run{}, err
	}
	sum := sha256.Sum256(binary)
	commit, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	id := hex.EncodeToString(secret[:4])
	return ledger.Run{
		ID: id, Seed: o.seed, Commit: strings.TrimSpace(string(commit)), Binary: hex.EncodeToString(sum[:]),
		BrokerVersion: n.version, QueueType: o.queueType, Topology: o.topology,
		Messages: o.warmUp + o.messages, WarmUp: o.warmUp,
		Liveness: o.liveness,
		Replicas: o.replicas, Concurrency: o.concurrency, Prefetch: o.prefetch, MaxRetries: o.retries, RetryDelay: o.delay,
		RequeueDelay: 250 * time.Millisecond,
		AppTimeout:   o.appTimeout, Grace: o.appTimeout + 8*time.Second, Queue: mainQueue, // a stop must interrupt nothing
		Never: o.never,
		HTTP:  o.posts, Batches: o.batches, Outbox: o.rows(), Rollback: 1000 * o.rollback / max(1, o.rows()),
		Batch: relayBatch, Relays: o.relays, Gather: o.gather, Spoiled: o.spoiled,
		Secrets: []string{canaryBody: "canary-body-" + hex.EncodeToString(secret[4:10]), canaryPassword: "canary-password-" +
			hex.EncodeToString(secret[10:]),
			canaryToken: "canary-token-" + hex.EncodeToString(secret[4:]), canaryDatabase: "canary-database-" +
				hex.EncodeToString(secret[8:])},
		Replay: replay(o, n.branch()), MayLose: o.queueType == "classic" &&
			strings.Contains(strings.Join(o.chosen(), ","), "broker-kill"),
		Forgets: topologies[o.topology].forgets, Limit: topologies[o.topology].returns * o.retries,
	}, nil
}

// hash of a schedule: two runs with the same one met the same faults.
func hash(list []due) string {
	h := sha256.New()
	for _, d := range list {
		_, _ = fmt.Fprintln(h, d)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// replay is the command line that draws the same plans and faults again.
func replay(o options, version string) string {
	command := "scripts/chaos.sh run"
	if o.cluster {
		command = "scripts/chaos.sh cluster"
	}
	var more strings.Builder
	for _, e := range o.environ {
		_, _ = fmt.Fprintf(&more, " -env %q", e)
	}
	return fmt.Sprintf("TEST_BROKER_VERSION=%s %s -seed %d -messages %d -warm-up %d -liveness %d -outbox %d -rollback "+
		"%d -publish %d -batches %d -relays %d -faults %d -kinds %s -queue-type %s -topology %s -replicas %d "+
		"-max-retries %d -retry-delay %s -concurrency %d -prefetch %d -rate %d -never %d -gather %d -spoiled %d -stretch %v "+
		"-app-timeout %s%s",
		version, command, o.seed, o.messages, o.warmUp, o.liveness, o.outbox, o.rollback, o.posts, o.batches, o.relays,
		o.faults, strings.Join(o.chosen(), ","), o.queueType, o.topology, o.replicas, o.retries, o.delay,
		o.concurrency, o.prefetch, o.rate, o.never, o.gather, o.spoiled, o.stretch, o.appTimeout, more.String())
}
