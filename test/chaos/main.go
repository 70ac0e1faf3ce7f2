// Command chaos proves that the sidecar loses nothing: a real broker, the unmodified binary, an app and a publisher that
// write down everything, faults by the dozen, and a judge that reads what was written down. scripts/chaos.sh boots the
// broker around it.
//
//	chaos run      a whole run; exits with 1 when the judge finds something
//	chaos selftest builds sidecars with deliberate bugs and shows that the judge finds each
//	chaos judge    judges a run again
//	chaos app, chaos publish    parts of a run, in processes of their own
package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sidecar/test/chaos/app"
	"sidecar/test/chaos/judge"
	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/publish"
)

func main() {
	if len(os.Args) < 2 {
		_, _ = fmt.Fprintln(os.Stderr, "usage: chaos run|selftest|judge|app|publish [flags]")
		os.Exit(64)
	}
	commands := map[string]func([]string) error{"run": runAll, "selftest": selfTest, "judge": judgeAgain, "app": serveApp, "publish": publishAll}
	command := commands[os.Args[1]]
	if command == nil {
		_, _ = fmt.Fprintf(os.Stderr, "chaos: no command %q\n", os.Args[1])
		os.Exit(64)
	}
	switch err := command(os.Args[2:]); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		_, _ = fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func say(format string, args ...any) {
	_, _ = fmt.Printf("%s "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
}

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
	concurrency int
	prefetch    int
	rate        int
	never       int
	stretch     float64
	patience    time.Duration
	appTimeout  time.Duration
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
	f.IntVar(&o.faults, "faults", 22, "faults")
	f.StringVar(&o.kinds, "kinds", strings.Join(allKinds(), ","), "kinds of faults to draw from")
	f.StringVar(&o.without, "without", "", "kinds of faults to leave out")
	f.StringVar(&o.queueType, "queue-type", "quorum", "classic or quorum")
	f.IntVar(&o.concurrency, "concurrency", 16, "SIDECAR_CONCURRENCY")
	f.IntVar(&o.prefetch, "prefetch", 0, "SIDECAR_PREFETCH; default twice the concurrency")
	f.IntVar(&o.rate, "rate", 500, "messages published per second at most")
	f.IntVar(&o.never, "never", 0, "how many more of a hundred messages fail for ever")
	f.Float64Var(&o.stretch, "stretch", 1, "how much longer than usual faults last that last at all")
	f.DurationVar(&o.appTimeout, "app-timeout", 2*time.Second, "SIDECAR_APP_TIMEOUT")
	f.DurationVar(&o.patience, "patience", 0, "how long everything may take to be settled; default 3m and the time spent on answers that never come")
	f.Func("env", "another variable of the sidecar, NAME=VALUE", func(s string) error { o.environ = append(o.environ, s); return nil })
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
		o.prefetch = 2 * o.concurrency
	}
	if o.patience == 0 { // one message in a hundred meets an app that does not answer
		o.patience = 3*time.Minute + time.Duration(o.messages/100/o.concurrency)*o.appTimeout
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

// check refuses what would make another run than the one that was asked for.
func (o options) check() error {
	for name, n := range map[string]int{"messages": o.messages, "concurrency": o.concurrency, "rate": o.rate} {
		if n < 1 {
			return fmt.Errorf("-%s %d: 1 or more", name, n)
		}
	}
	for name, n := range map[string]int{"warm-up": o.warmUp, "liveness": o.liveness, "faults": o.faults, "prefetch": o.prefetch, "never": o.never} {
		if n < 0 {
			return fmt.Errorf("-%s %d: 0 or more", name, n)
		}
	}
	if o.stretch <= 0 {
		return fmt.Errorf("-stretch %v: more than 0", o.stretch)
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

// chosen are the kinds that may be drawn. Classic queues lose what is in retry transit when their broker is killed: that
// is only done when it was asked for.
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
	var kinds []string
	for kind := range strings.SplitSeq(o.kinds, ",") {
		keep := true
		for _, l := range leave {
			keep = keep && l != kind
		}
		if keep {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

func runAll(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	err = o.run()
	if o.temporary && !errors.Is(err, errBroken) {
		return errors.Join(err, os.RemoveAll(o.dir))
	}
	return err
}

func (o options) run() error {
	nodes, err := nodesFromEnvironment(o.script)
	if err != nil {
		return err
	}
	o.cluster = len(nodes) > 1
	n := nodes[0]
	list, err := schedule(o.seed, o.faults, o.warmUp, o.warmUp+o.messages, o.stretch, o.chosen())
	if err != nil {
		return err
	}
	run, err := describe(o, n)
	if err != nil {
		return err
	}
	if err := ledger.WriteJSON(o.dir, ledger.ScheduleFile, list); err != nil {
		return err
	}
	run.Schedule = hash(list)
	say("seed %d, %d faults, %s queues, RabbitMQ %s, ledgers in %s", o.seed, len(list), o.queueType, n.version, o.dir)
	for _, d := range list {
		say("  scheduled: fault %d, %s after %d messages, %s", d.ID, d.Kind, d.At, d.Duration.Round(time.Millisecond))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// The publisher of this process must be described before it starts, the run again when its length is known.
	if err := ledger.WriteJSON(o.dir, ledger.RunFile, run); err != nil {
		return err
	}
	r, err := newRig(o, run, nodes)
	if err != nil {
		return err
	}
	err = r.start(ctx)
	if err == nil {
		err = r.drive(ctx, list)
	}
	r.stop()
	if werr := ledger.WriteJSON(o.dir, ledger.RunFile, r.run); err != nil || werr != nil {
		return errors.Join(err, werr)
	}
	return verdict(o.dir, o.page)
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
		BrokerVersion: n.version, QueueType: o.queueType, Messages: o.warmUp + o.messages, WarmUp: o.warmUp, Liveness: o.liveness,
		Concurrency: o.concurrency, Prefetch: o.prefetch, MaxRetries: 10, RetryDelay: 300 * time.Millisecond, RequeueDelay: 300 * time.Millisecond,
		AppTimeout: o.appTimeout, Grace: o.appTimeout + 8*time.Second, Queue: mainQueue, // a stop must interrupt nothing
		Never:   o.never,
		Secrets: []string{"canary-body-" + hex.EncodeToString(secret[4:10]), "canary-password-" + hex.EncodeToString(secret[10:])},
		Replay:  replay(o, n.branch()), MayLose: o.queueType == "classic" && strings.Contains(strings.Join(o.chosen(), ","), "broker-kill"),
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
	return fmt.Sprintf("TEST_BROKER_VERSION=%s %s -seed %d -messages %d -warm-up %d -liveness %d -faults %d -kinds %s -queue-type %s -concurrency %d -prefetch %d -rate %d -never %d -stretch %v -app-timeout %s%s",
		version, command, o.seed, o.messages, o.warmUp, o.liveness, o.faults, strings.Join(o.chosen(), ","), o.queueType, o.concurrency, o.prefetch, o.rate, o.never, o.stretch, o.appTimeout, more.String())
}

func judgeAgain(args []string) error {
	f := flag.NewFlagSet("chaos judge", flag.ContinueOnError)
	dir := f.String("dir", ".", "directory with the ledgers")
	if err := f.Parse(args); err != nil {
		return err
	}
	return verdict(*dir, "")
}

// errBroken ends a run in which an invariant does not hold.
var errBroken = errors.New("invariants do not hold")

// verdict judges the run in dir, prints the report, and writes it there and to page, unless that is empty.
func verdict(dir, page string) error {
	v, err := judge.Judge(dir)
	if err != nil {
		return err
	}
	text := v.Markdown()
	if err := ledger.WriteJSON(dir, ledger.ReportFile, v); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, ledger.ReportPage), []byte(text), 0o600); err != nil {
		return err
	}
	if page != "" {
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			return err
		}
	}
	_, _ = fmt.Print(text)
	if !v.OK() {
		return fmt.Errorf("%w: %s; ledgers in %s", errBroken, strings.Join(v.Broken(), ", "), dir)
	}
	return nil
}

func serveApp(args []string) error {
	f := flag.NewFlagSet("chaos app", flag.ContinueOnError)
	dir, addr := f.String("dir", ".", "directory of the ledgers"), f.String("addr", "127.0.0.1:8080", "where to listen")
	if err := f.Parse(args); err != nil {
		return err
	}
	return app.Run(*dir, *addr)
}

func publishAll(args []string) error {
	f := flag.NewFlagSet("chaos publish", flag.ContinueOnError)
	dir, url := f.String("dir", ".", "directory of the ledgers"), f.String("url", "", "of the broker, several separated by commas")
	rate, canary := f.Int("rate", 500, "messages per second at most"), f.String("canary", "", "a text that must turn up in no log")
	if err := f.Parse(args); err != nil {
		return err
	}
	var run ledger.Run
	if err := ledger.ReadJSON(*dir, ledger.RunFile, &run); err != nil {
		return err
	}
	return publish.Run(publish.Options{
		Dir: *dir, URL: strings.Split(*url, ","), Exchange: mainExchange, Run: run, Canary: *canary, Rate: *rate,
	}, os.Stdin, os.Stdout)
}
