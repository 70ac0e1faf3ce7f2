package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"sidecar/internal/deadletter"
)

// subcommand is one of the commands below `sidecar dlq` or `sidecar outbox`.
type subcommand struct {
	name, arguments, summary string
	run                      func(ctx context.Context, c *call) error
	examples                 []string // what follows the command, without its name
}

// group is all commands below one.
type group struct {
	name, about string
	commands    []subcommand
	more        string // at the end of the help
}

// call is one use of a subcommand.
type call struct {
	invocation
	subcommand

	words       []string      // arguments that are not flags, in order
	out         *bufio.Writer // stdout; the end of a command flushes it
	json, quiet bool

	filter deadletter.Filter // of dlq: the conditions
	wrong  error             // the first mistake in a condition
	limit  int               // of an action; 0 = all
	all    bool
}

// run runs the subcommand that the first argument names. The first SIGINT or SIGTERM ends it at a safe point, the
// second at once.
func (g *group) run(ctx context.Context, in invocation) error {
	if len(in.args) == 0 {
		g.help(in.stderr)
		return fmt.Errorf("%w: %s: a command is missing", errUsage, g.name)
	}
	name := in.args[0]
	if slices.Contains([]string{"-h", "-help", "--help", "help"}, name) {
		g.help(in.stdout)
		return flag.ErrHelp
	}
	names := make([]string, len(g.commands))
	for i, s := range g.commands {
		names[i] = s.name
		if s.name == name {
			ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
			defer stop()
			context.AfterFunc(ctx, stop)
			in.args = in.args[1:]
			return s.run(ctx, newCall(in, g.name, s))
		}
	}
	return fmt.Errorf("%w: %s: no command %q; there are %s", errUsage, g.name, name, strings.Join(names, ", "))
}

func (g *group) help(w io.Writer) {
	_, _ = fmt.Fprintf(w, "usage: sidecar %s COMMAND\n\n%s\n\n", g.name, g.about)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range g.commands {
		_, _ = fmt.Fprintf(t, "  %s\t%s\t%s\n", s.name, s.arguments, s.summary)
	}
	_ = t.Flush()
	_, _ = fmt.Fprint(w, g.more)
}

func newCall(in invocation, above string, s subcommand) *call {
	in.flags = flag.NewFlagSet(strings.TrimSpace(above+" "+s.name), flag.ContinueOnError)
	in.flags.SetOutput(io.Discard) // its words are not ours
	return &call{invocation: in, subcommand: s, out: bufio.NewWriter(in.stdout)}
}

// parse reads flags and words in any order; most is how many words there may be, -1 for any number.
func (c *call) parse(most int) (err error) {
	c.words, err = interleaved(c.flags, c.args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		c.printUsage(c.stdout)
		return err
	case err != nil:
		return c.misuse("%w", err)
	case most >= 0 && len(c.words) > most:
		return c.misuse("unexpected argument %q", c.words[most])
	}
	return c.wrong
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

// failed is how a command ends badly: a sentence that says what to do next.
func (c *call) failed(format string, args ...any) error {
	return errors.New(c.flags.Name() + ": " + printable(fmt.Sprintf(format, args...)))
}

// oneLine is the text of an error, which may be several joined ones.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}

// printUsage prints the summary, the flags, the conditions where there are any, and the examples.
func (c *call) printUsage(w io.Writer) {
	usage := strings.TrimSpace("sidecar " + c.flags.Name() + " " + c.arguments)
	_, _ = fmt.Fprintf(w, "usage: %s [flags]\n\n%s%s.\n\n", usage, strings.ToUpper(c.summary[:1]), c.summary[1:])
	var conditions []*flag.Flag
	for _, known := range deadletter.Conditions {
		if f := c.flags.Lookup(known.Name); f != nil {
			conditions = append(conditions, f)
		}
	}
	c.flags.VisitAll(func(f *flag.Flag) {
		if f.Usage != "" && !slices.Contains(conditions, f) {
			printFlag(w, f)
		}
	})
	if len(conditions) > 0 {
		_, _ = fmt.Fprint(w, "\nConditions. All must hold; of several values for one any, of several headers all.\n\n")
	}
	for _, f := range conditions {
		printFlag(w, f)
	}
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

// document writes v as one line of JSON that does no harm to a terminal.
func (c *call) document(v any) error {
	e := json.NewEncoder(&escaping{w: c.out})
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// say writes one line for people to standard output.
func (c *call) say(format string, args ...any) {
	_, _ = fmt.Fprintf(c.out, format+"\n", args...) // the flush reports what goes wrong
}
