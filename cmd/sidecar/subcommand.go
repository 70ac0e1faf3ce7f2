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

	"sidecar/internal/config"
	"sidecar/internal/deadletter"
)

// subcommand is one of the commands below `sidecar`, `sidecar dlq` or `sidecar outbox`.
type subcommand struct {
	name, arguments, summary string
	run                      func(ctx context.Context, c *call) error
	examples                 []string // what follows the command, without its name
}

// group is all commands below one.
type group struct {
	about    string
	commands []subcommand
	more     string // at the end of the help
}

// call is one use of a subcommand.
type call struct {
	invocation
	subcommand

	flags       *flag.FlagSet
	words       []string      // arguments that are not flags, in order
	out         *bufio.Writer // stdout; the end of a command flushes it
	json, quiet bool

	filter deadletter.Filter // of dlq: the conditions
	wrong  error             // the first mistake in a condition
	limit  int               // of an action; 0 = all
	all    bool
}

// run is choose for a command that the first SIGINT or SIGTERM ends at a safe point, and the second at once.
func (g *group) run(ctx context.Context, c *call) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return g.choose(ctx, c)
}

// choose runs the command that the first argument names.
func (g *group) choose(ctx context.Context, c *call) error {
	names := make([]string, len(g.commands))
	for i, s := range g.commands {
		names[i] = s.name
	}
	known := strings.Join(names, ", ")
	if len(c.args) == 0 {
		return c.misuse("a command is missing; there are %s", known)
	}
	name := c.args[0]
	if slices.Contains([]string{"-h", "-help", "--help", "help"}, name) {
		g.help(c)
		return flag.ErrHelp
	}
	i := slices.Index(names, name)
	if i < 0 {
		return c.misuse("no command %q; there are %s", name, known)
	}
	in := c.invocation
	in.args = in.args[1:]
	return g.commands[i].run(ctx, newCall(in, c.flags.Name(), g.commands[i]))
}

func (g *group) help(c *call) {
	_, _ = fmt.Fprintf(c.stdout, "usage: %s %s\n\n%s\n\n", c.flags.Name(), c.arguments, g.about)
	t := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	for _, s := range g.commands {
		_, _ = fmt.Fprintf(t, "  %s\t%s\t%s\n", s.name, s.arguments, s.summary)
	}
	_ = t.Flush()
	_, _ = fmt.Fprint(c.stdout, g.more)
}

func newCall(in invocation, above string, s subcommand) *call {
	flags := flag.NewFlagSet(strings.TrimSpace(above+" "+s.name), flag.ContinueOnError)
	flags.SetOutput(io.Discard) // its words are not ours
	return &call{invocation: in, subcommand: s, flags: flags, out: bufio.NewWriter(in.stdout)}
}

// load reads the flags of a command that takes no words, and the configuration.
func (c *call) load() (*config.Config, error) {
	if err := c.parse(0); err != nil {
		return nil, err
	}
	return loadConfig(c.environ)
}

// twoDashes rewrites the errors of package flag.
var twoDashes = strings.NewReplacer("flag provided but not defined: -", "no flag --", "needs an argument: -",
	"needs an argument: --", "\" for flag -", "\" for flag --", "\" for -", "\" for --")

// parse reads flags and words in any order; most is how many words there may be, -1 for any number.
func (c *call) parse(most int) (err error) {
	c.words, err = interleaved(c.flags, c.args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		c.printUsage()
		return err
	case err != nil:
		return c.misuse("%s", twoDashes.Replace(err.Error()))
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
	return fmt.Errorf("%w: %w (%s --help)", errUsage, fmt.Errorf(format, args...), c.flags.Name())
}

// failed is how a command ends badly: a sentence that says what to do next.
func (c *call) failed(format string, args ...any) error {
	return errors.New(strings.TrimPrefix(c.flags.Name(), "sidecar ") + ": " + printable(fmt.Sprintf(format, args...)))
}

// oneLine is the text of an error, which may be several joined ones.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}

// printUsage prints the summary, the flags, the conditions where there are any, and the examples.
func (c *call) printUsage() {
	var flags, conditions []*flag.Flag
	for _, known := range deadletter.Conditions {
		if f := c.flags.Lookup(known.Name); f != nil && f.Usage == known.Help { // explain has another --status
			conditions = append(conditions, f)
		}
	}
	usage := c.flags.Name() + strings.TrimRight(" "+c.arguments, " ")
	c.flags.VisitAll(func(f *flag.Flag) {
		if f.Usage != "" && !slices.Contains(conditions, f) {
			flags = append(flags, f)
		}
	})
	if len(flags) > 0 {
		usage += " [flags]"
	}
	_, _ = fmt.Fprintf(c.stdout, "usage: %s\n\n%s%s.\n", usage, strings.ToUpper(c.summary[:1]), c.summary[1:])
	c.printFlags("\n", flags)
	c.printFlags("\nConditions. All must hold; of several values for one any, of several headers all.\n\n", conditions)
	_, _ = fmt.Fprint(c.stdout, "\nExamples:\n\n")
	for _, e := range c.examples {
		_, _ = fmt.Fprintln(c.stdout, strings.TrimRight("  "+c.flags.Name()+" "+e, " "))
	}
}

// printFlags prints flags, if there are any, below a title.
func (c *call) printFlags(title string, flags []*flag.Flag) {
	for _, f := range flags {
		value, usage := flag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Name == "quiet" {
			name += ", -q"
		} else if value != "" {
			name += " " + strings.ToUpper(value)
		}
		_, _ = fmt.Fprintf(c.stdout, "%s  %-25s  %s\n", title, name, usage)
		title = ""
	}
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
