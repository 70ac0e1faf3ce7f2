// Command chaos proves that the sidecar loses nothing: a real broker, the unmodified binary, an app and a publisher
// that write down everything, faults by the dozen, and a judge that reads these ledgers. scripts/chaos.sh boots the
// broker around it.
//
//	chaos run      a whole run; exits with 1 when the judge finds something
//	chaos selftest builds sidecars with deliberate bugs and shows that the judge finds each
//	chaos judge    judges a run again
//	chaos app, publish, post, rows    parts of a run, in processes of their own
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sidecar/test/chaos/judge"
	"sidecar/test/chaos/ledger"
)

func main() {
	if len(os.Args) < 2 {
		_, _ = fmt.Fprintln(os.Stderr, "usage: chaos run|selftest|judge|app|publish|post|rows [flags]")
		os.Exit(64)
	}
	commands := map[string]func([]string) error{"run": runAll, "selftest": selfTest, "judge": judgeAgain, "app": serveApp,
		"queues": runQueues, "queues-app": serveQueues,
		"publish": publishAll,
		"post":    postAll, "rows": writeRows, "queues-judge": judgeQueues}
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
	db, err := databaseFromEnvironment(o)
	if err != nil {
		return err
	}
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
	r, err := newRig(o, run, nodes, db)
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
	happened := make([]string, len(v.Faults))
	for i, f := range v.Faults {
		happened[i] = fmt.Sprintf("%s %d", f.Kind, f.Count-f.Failed)
	}
	say("faults that happened: %s", strings.Join(happened, ", "))
	if !v.OK() {
		return fmt.Errorf("%w: %s; ledgers in %s", errBroken, strings.Join(v.Broken(), ", "), dir)
	}
	return nil
}
