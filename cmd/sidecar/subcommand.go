package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// subcommand is one of the commands below `sidecar dlq` or `sidecar outbox`. C is what it works with.
type subcommand[C any] struct {
	name, arguments, summary string
	run                      func(ctx context.Context, c C) error
	examples                 []string // what follows `sidecar dlq`, without the name
}

// call is one use of a subcommand.
type call struct {
	invocation
	name, arguments, summary string
	examples                 []string

	flags *flag.FlagSet
	words []string // arguments that are not flags, in order
	json  bool
}

// runBelow runs the subcommand that the first argument names, with the result of open. The first SIGINT or SIGTERM ends
// it at a safe point, the second at once.
func runBelow[C any](ctx context.Context, in invocation, above string, all []subcommand[C], help func(io.Writer),
	open func(call) C) error {
	if len(in.args) == 0 {
		help(in.stderr)
		return fmt.Errorf("%w: %s: a command is missing", errUsage, above)
	}
	name := in.args[0]
	if name == "-h" || name == "-help" || name == "--help" || name == "help" {
		help(in.stdout)
		return flag.ErrHelp
	}
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.name
		if s.name == name {
			ctx, stop := stoppable(ctx)
			defer stop()
			in.args = in.args[1:]
			return s.run(ctx, open(newCall(in, above, s.name, s.arguments, s.summary, s.examples)))
		}
	}
	return fmt.Errorf("%w: %s: no command %q; there are %s", errUsage, above, name, strings.Join(names, ", "))
}

func newCall(in invocation, above, name, arguments, summary string, examples []string) call {
	flags := flag.NewFlagSet(strings.TrimSpace(above+" "+name), flag.ContinueOnError)
	flags.SetOutput(io.Discard) // its words are not ours
	return call{invocation: in, name: name, arguments: arguments, summary: summary, examples: examples, flags: flags}
}

// read reads flags and words in any order; most is how many words there may be, -1 for any number.
func (c *call) read(most int, usage func(io.Writer)) (err error) {
	c.words, err = interleaved(c.flags, c.args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		usage(c.stdout)
		return err
	case err != nil:
		return c.misuse("%w", err)
	case most >= 0 && len(c.words) > most:
		return c.misuse("unexpected argument %q", c.words[most])
	}
	return nil
}

// interleaved reads flags and words in any order; after -- there are only words.
func interleaved(flags *flag.FlagSet, args []string) (words []string, err error) {
	for len(args) > 0 {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		read := len(args) - flags.NArg()
		onlyWords := read > 0 && args[read-1] == "--"
		args = flags.Args()
		if onlyWords || len(args) == 0 {
			return append(words, args...), nil
		}
		words, args = append(words, args[0]), args[1:]
	}
	return words, nil
}

// misuse is an error of the command line.
func (c *call) misuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %w (sidecar %[2]s --help)", errUsage, c.flags.Name(), fmt.Errorf(format, args...))
}

// printUsage prints the summary, the flags for which shown is true, what more prints, and the examples.
func (c *call) printUsage(w io.Writer, shown func(name string) bool, more func()) {
	usage := strings.TrimSpace("sidecar " + c.flags.Name() + " " + c.arguments)
	_, _ = fmt.Fprintf(w, "usage: %s [flags]\n\n%s%s.\n\n", usage, strings.ToUpper(c.summary[:1]), c.summary[1:])
	c.flags.VisitAll(func(f *flag.Flag) {
		if f.Usage != "" && shown(f.Name) {
			printFlag(w, f)
		}
	})
	more()
	_, _ = fmt.Fprint(w, "\nExamples:\n\n")
	for _, e := range c.examples {
		_, _ = fmt.Fprintln(w, strings.TrimRight("  sidecar "+c.flags.Name()+" "+e, " "))
	}
}

func printFlag(w io.Writer, f *flag.Flag) {
	value, usage := flag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Name == "quiet" {
		name += ", -q"
	} else if value != "" {
		name += " " + strings.ToUpper(value)
	}
	_, _ = fmt.Fprintf(w, "  %-25s  %s\n", name, usage)
}

// writeJSON writes v as one line of JSON that does no harm to a terminal.
func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(escapeJSON(b.Bytes()))
	return err
}

// stoppable ends with the first SIGINT or SIGTERM; the second ends the process.
func stoppable(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
