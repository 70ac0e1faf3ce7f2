// Command bench measures the sidecar beside a hand-written consumer, on a broker that scripts/broker.sh has started.
// How and why is in docs/performance.md; make bench runs it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

type options struct {
	sidecar  string
	against  []binary
	env      []string
	quick    bool
	runs     int
	messages int
	only     []string
	out      string
	docs     bool
	strict   bool
}

// binary is a further sidecar to compare with.
type binary struct{ name, path string }

func parse(args []string, problems io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(problems)
	f.StringVar(&o.sidecar, "sidecar", "bin/sidecar", "the binary to measure")
	f.BoolVar(&o.quick, "quick", false, "a tenth of the messages: a first look, no figures to quote")
	f.IntVar(&o.runs, "runs", 5, "measured runs of each candidate")
	f.IntVar(&o.messages, "n", 30_000, "messages of a drained run")
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
	f.Func("only", "scenarios, separated by commas: "+strings.Join(names(), ","), func(v string) error {
		for name := range strings.SplitSeq(v, ",") {
			if !slices.Contains(names(), name) {
				return fmt.Errorf("no scenario %q", name)
			}
			o.only = append(o.only, name)
		}
		return nil
	})
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.runs < 1 || o.messages < 1 {
		return nil, fmt.Errorf("%d runs of %d messages measure nothing", o.runs, o.messages)
	}
	if o.docs {
		var partial []string
		f.Visit(func(f *flag.Flag) {
			if slices.Contains([]string{"quick", "only", "env", "n", "runs"}, f.Name) {
				partial = append(partial, "-"+f.Name)
			}
		})
		if len(partial) > 0 {
			return nil, fmt.Errorf("%s: the documentation shows a whole run with the usual settings, and -docs replaces all of it",
				strings.Join(partial, ", "))
		}
	}
	if o.quick {
		o.messages, o.runs = max(o.messages/10, 1), min(o.runs, 2)
	}
	return o, nil
}

func names() (out []string) {
	for _, s := range scenarios() {
		out = append(out, s.name)
	}
	return out
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
		if len(o.only) > 0 && !slices.Contains(o.only, s.name) {
			continue
		}
		b.say("%s", s.name)
		if err := s.run(b); err != nil {
			o.docs, o.strict = false, false // what was measured so far is worth a look, and nothing more
			return errors.Join(fmt.Errorf("%s: %w", s.name, err), b.result.write(o, table))
		}
	}
	return b.result.write(o, table)
}

func (r *result) write(o *options, table io.Writer) error {
	encoded, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	encoded = append(encoded, '\n')
	figures := r.figures()
	text := r.markdown(figures)
	plot := r.plot()
	files := map[string][]byte{"result.json": encoded, "result.md": []byte(text), "plot.svg": plot}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(o.out, name), content, 0o644); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(table, text); err != nil {
		return err
	}
	if o.docs {
		if err := r.publish(text, plot, encoded); err != nil {
			return err
		}
	}
	if o.strict {
		return missed(figures)
	}
	return nil
}

// publish puts the results where readers look for them.
func (r *result) publish(text string, plot, encoded []byte) error {
	const page = "docs/performance.md"
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	fresh, err := replaceSection(string(old), text)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return errors.Join(
		os.WriteFile(page, []byte(fresh), 0o644),
		os.WriteFile("docs/performance.svg", plot, 0o644),
		os.WriteFile("bench/result.json", encoded, 0o644))
}

const (
	sectionBegin = "<!-- bench:begin -->"
	sectionEnd   = "<!-- bench:end -->"
)

// replaceSection replaces what stands between the two marks.
func replaceSection(page, text string) (string, error) {
	head, rest, found := strings.Cut(page, sectionBegin)
	_, tail, ended := strings.Cut(rest, sectionEnd)
	if !found || !ended {
		return "", fmt.Errorf("no section between %s and %s", sectionBegin, sectionEnd)
	}
	return head + sectionBegin + "\n\n" + text + "\n" + sectionEnd + tail, nil
}
