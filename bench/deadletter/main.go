// Command deadletter measures the cost of reading a dead-letter queue and of moving its messages: the time and the
// largest memory of each command, and the CPU time of the command and of the broker. The redrive is compared with the
// loop by hand of bench/redrive and with a dynamic shovel. It needs the environment of scripts/broker.sh run 0 …; make
// bench-deadletter runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

type options struct {
	sidecars   []binary // the one to measure, and further ones to compare with
	byHand     string   // the program of bench/redrive
	only       string
	kind       string
	messages   []int
	runs, body int
}

// binary is one sidecar.
type binary struct{ name, path string }

func main() {
	if err := run(os.Args[1:], os.Getenv("AMQP_URL"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string, url string, out io.Writer) error {
	o := options{messages: []int{}, sidecars: []binary{{name: "sidecar"}}}
	f := flag.NewFlagSet("deadletter", flag.ContinueOnError)
	f.StringVar(&o.sidecars[0].path, "sidecar", "bin/sidecar", "the binary to measure")
	f.Func("against", "NAME=PATH of another sidecar to run interleaved with it; repeatable", func(v string) error {
		name, path, ok := strings.Cut(v, "=")
		if !ok || name == "" || path == "" {
			return errors.New("want NAME=PATH")
		}
		o.sidecars = append(o.sidecars, binary{name, path})
		return nil
	})
	f.StringVar(&o.kind, "queue-type", "classic,quorum", "types of queues, separated by commas")
	f.StringVar(&o.only, "only", "", "measure only commands that begin with this, such as redrive")
	f.IntVar(&o.runs, "runs", 3, "runs of each command")
	f.IntVar(&o.body, "body", 1024, "bytes of a body")
	sizes := f.String("n", "20000", "messages in the queue, several separated by commas")
	if err := f.Parse(args); err != nil {
		return err
	}
	for text := range strings.SplitSeq(*sizes, ",") {
		n := 0
		if _, err := fmt.Sscan(text, &n); err != nil || n < 1 {
			return fmt.Errorf("-n %q: want positive numbers", *sizes)
		}
		o.messages = append(o.messages, n)
	}
	if url == "" {
		return errors.New("AMQP_URL is unset: run it below scripts/broker.sh run 0 …")
	}
	dir, err := os.MkdirTemp("", "bench-deadletter")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // nothing is left to do about it
	o.byHand = filepath.Join(dir, "redrive")
	// #nosec G204 -- a path of our own
	build := exec.CommandContext(context.Background(), "go", "build", "-o", o.byHand, "./bench/redrive")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build bench/redrive: %w: %s", err, text)
	}
	fmt.Fprintf(out, "| queue | messages of %d bytes | command | seconds | messages per second | CPU s | broker CPU s "+
		"| peak RSS MiB |\n|---|---|---|---|---|---|---|---|\n", o.body)
	for kind := range strings.SplitSeq(o.kind, ",") {
		for _, n := range o.messages {
			if err := measure(&o, url, kind, n, out); err != nil {
				return fmt.Errorf("%s, %d messages: %w", kind, n, err)
			}
		}
	}
	return nil
}

// command is something that is measured.
type command struct {
	name string
	some bool // it reads twenty messages
	run  func() (result, error)
}

// contender is a list of commands. The last one empties the queue.
type contender []command

// contenders are all that is compared.
func (o *options) contenders(b *broker, n int) (all []contender) {
	for _, s := range o.sidecars {
		var c contender
		for _, args := range [][]string{
			{"list"}, {"groups"}, {"list", "--limit", "1", "--error", "occurs nowhere"}, {"export", "-"}, {"redrive", "--all"},
		} {
			if name := strings.Join(args, " "); strings.HasPrefix(name, o.only) {
				c = append(c, command{
					name: "`dlq " + name + "` of " + s.name, some: name == "list",
					run: func() (result, error) { return b.sidecar(s.path, args) },
				})
			}
		}
		all = append(all, c)
	}
	return append(all,
		contender{{name: "redrive by hand", run: func() (result, error) {
			return timed(o.byHand, nil, "AMQP_URL="+b.url, "FROM="+b.dlq(), "TO="+b.queue())
		}}},
		contender{{name: "shovel", run: func() (result, error) { return b.shovel(n) }}})
}

// measure runs all commands of every contender on a queue of n messages, the contenders in turn, and prints the median
// of each command.
func measure(o *options, url, kind string, n int, out io.Writer) error {
	b, err := newBroker(url, kind)
	if err != nil {
		return err
	}
	defer b.close()
	all := o.contenders(b, n)
	results := map[string][]result{}
	for round := range o.runs {
		for i := range all {
			c := all[(round+i)%len(all)] // none is always the first
			if err := b.fill(n, o.body); err != nil {
				return err
			}
			for i := range c {
				r, err := b.counted(c[i].run)
				if err != nil {
					return fmt.Errorf("%s: %w", c[i].name, err)
				}
				results[c[i].name] = append(results[c[i].name], r)
			}
			if err := b.moved(n); err != nil {
				return fmt.Errorf("%s: %w", c[len(c)-1].name, err)
			}
		}
	}
	for _, c := range all {
		for i := range c {
			rate := "–"
			if list := results[c[i].name]; !c[i].some {
				rate = fmt.Sprintf("%.0f", float64(n)/median(list, took))
			}
			report(out, fmt.Sprintf("| %s | %d | %s", kind, n, c[i].name), rate, results[c[i].name])
		}
	}
	return nil
}

type result struct {
	took, cpu, broker time.Duration // cpu: user and system
	memory            int64         // KiB at most
}

func took(r result) float64      { return r.took.Seconds() }
func cpu(r result) float64       { return r.cpu.Seconds() }
func brokerCPU(r result) float64 { return r.broker.Seconds() }
func memory(r result) float64    { return float64(r.memory) / 1024 }

// report prints one row.
func report(out io.Writer, row, rate string, list []result) {
	fmt.Fprintf(out, "%s | %s | %s | %s | %s | %.1f |\n", row, spread(list, took), rate, spread(list, cpu),
		spread(list, brokerCPU), median(list, memory))
}

func sorted(list []result, of func(result) float64) []float64 {
	all := make([]float64, len(list))
	for i, r := range list {
		all[i] = of(r)
	}
	slices.Sort(all)
	return all
}

func median(list []result, of func(result) float64) float64 { return sorted(list, of)[len(list)/2] }

func spread(list []result, of func(result) float64) string {
	all := sorted(list, of)
	return fmt.Sprintf("%.2f (%.2f–%.2f)", all[len(all)/2], all[0], all[len(all)-1])
}
