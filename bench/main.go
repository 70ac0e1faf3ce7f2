// Command bench measures the sidecar beside a hand-written consumer, on a broker that scripts/broker.sh has started.
// How and why is in docs/performance.md; make bench runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

type options struct {
	sidecar  string
	against  []binary
	env      []string
	quick    bool
	runs     int
	messages int
	flight   int
	only     []string
	steady   time.Duration
	out      string
	docs     bool
	strict   bool
	amqpURL  string
	dsn      string // of the outbox's database
	tools    string // directory with the built programs of buildTools; "": they are built
}

// binary is a further sidecar to compare with.
type binary struct{ name, path string }

func parse(args []string, problems io.Writer) (*options, error) {
	o := &options{amqpURL: os.Getenv("AMQP_URL"), dsn: os.Getenv("POSTGRES_DSN")}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(problems)
	single := false // a scenario was named
	f.StringVar(&o.sidecar, "sidecar", "bin/sidecar", "the binary to measure")
	f.BoolVar(&o.quick, "quick", false, "a tenth of the messages: a first impression, no figures to quote")
	f.IntVar(&o.runs, "runs", 5, "measured runs of each candidate")
	f.IntVar(&o.messages, "n", 30_000, "messages of a drained run")
	f.IntVar(&o.flight, "c", 50, "messages in flight of the scenario drained")
	f.DurationVar(&o.steady, "steady", time.Hour, "duration of outbox-steady, which runs only when it is named")
	f.StringVar(&o.out, "out", "bench/out", "directory for result.json, result.md, plot.svg and cpu.pprof")
	f.BoolVar(&o.docs, "docs", false, "rewrite the figures in docs/performance.md, its plot and bench/result.json as well")
	f.BoolVar(&o.strict, "strict", false, "exit 1 when a figure misses its bar")
	f.Func("against", "NAME=PATH of another sidecar to run interleaved with them; repeatable", func(v string) error {
		name, path, ok := strings.Cut(v, "=")
		if !ok || name == "" || path == "" {
			return errors.New("want NAME=PATH")
		}
		o.against = append(o.against, binary{name, path})
		return nil
	})
	f.Func("env", "NAME=VALUE for the sidecars; repeatable", func(v string) error {
		o.env = append(o.env, v)
		return nil
	})
	f.Func("only", "scenarios, separated by commas: "+strings.Join(names(""),
		",")+"; consume, produce, several, retries and batches are all of a part", func(v string) error {
		for name := range strings.SplitSeq(v, ",") {
			switch {
			case slices.Contains([]string{consume, produce, several, retried, batches}, name):
				o.only = append(o.only, names(name)...)
			case slices.Contains(names(""), name):
				o.only = append(o.only, name)
				single = true
			default:
				return fmt.Errorf("no scenario %q", name)
			}
		}
		return nil
	})
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.runs < 1 || o.messages < 1 || o.flight < 1 {
		return nil, fmt.Errorf("%d runs of %d messages, %d in flight, measure nothing", o.runs, o.messages, o.flight)
	}
	if o.docs {
		if err := whole(f, single); err != nil {
			return nil, err
		}
	}
	if o.quick {
		o.messages, o.runs = max(o.messages/10, 1), min(o.runs, 2)
	}
	return o, nil
}

// whole returns an error for flags with which a run is not one for the documentation.
func whole(f *flag.FlagSet, single bool) error {
	var partial []string
	f.Visit(func(f *flag.Flag) {
		if slices.Contains([]string{"quick", "env", "n", "c", "runs"}, f.Name) || f.Name == "only" && single {
			partial = append(partial, "-"+f.Name)
		}
	})
	if len(partial) > 0 {
		return fmt.Errorf("%s: the documentation shows whole halves with the usual settings, and -docs replaces all of that",
			strings.Join(partial, ", "))
	}
	return nil
}

// names are the scenarios of a half, or all.
func names(half string) (out []string) {
	for _, s := range scenarios() {
		if half == "" || s.half == half && !s.long {
			out = append(out, s.name)
		}
	}
	return out
}

// wants says whether something of a half is to be measured.
func (o *options) wants(half string) bool {
	return len(o.only) == 0 || slices.ContainsFunc(scenarios(),
		func(s scenario) bool { return s.half == half && slices.Contains(o.only, s.name) })
}

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = measure(ctx, o, os.Stdout)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// measure runs the scenarios and writes what they found.
func measure(ctx context.Context, o *options, table io.Writer) error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	if _, err := os.Stat(o.sidecar); err != nil {
		if err := buildSidecar(ctx, o.sidecar); err != nil {
			return err
		}
	}
	r, err := newRig(ctx, o)
	if err != nil {
		return err
	}
	defer r.close()
	b := newBench(o, r)
	if err := r.declare(b.sidecar); err != nil {
		return err
	}
	for _, s := range scenarios() {
		if len(o.only) > 0 && !slices.Contains(o.only, s.name) || len(o.only) == 0 && s.long {
			continue
		}
		b.say("%s", s.name)
		if err := s.run(b); err != nil {
			o.docs, o.strict = false, false // these partial figures are printed, and not kept
			return errors.Join(fmt.Errorf("%s: %w", s.name, err), b.write(o, table))
		}
	}
	return b.write(o, table)
}
