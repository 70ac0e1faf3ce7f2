package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"sidecar/internal/config"
	"sidecar/internal/deadletter"
	"sidecar/internal/terminal"
)

// subcommand is one of the commands below `sidecar`, `sidecar dlq` or `sidecar outbox`.
type subcommand struct {
	name, arguments, summary string
	run                      func(ctx context.Context, c *call) error
	examples                 []string // what follows the command, without its name
}

// group is all commands below one.
type group struct {
	description string
	commands    []subcommand
	notes       string // at the end of the help
}

// call is one use of a subcommand.
type call struct {
	invocation
	subcommand

	group       *group // of a command that has commands below it
	flags       *flag.FlagSet
	words       []string // arguments that are not flags, in order
	out         *output  // stdout; the end of a command flushes it
	json, quiet bool

	subscription string // of dlq: the only one whose messages are asked for
	named        bool   // subscriptions have names

	filter deadletter.Filter // of dlq: the conditions
	wrong  error             // the first mistake in a condition
	limit  int               // of an action; 0 = all
	all    bool
	as     string       // who acts; "" is the user on this host
	log    *slog.Logger // of what an action has changed
}

// run is choose for a command that the first SIGINT or SIGTERM ends at a safe point, and the second at once.
func (g *group) run(ctx context.Context, c *call) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return g.choose(ctx, c)
}

// choose runs the command that the first argument names. "help COMMAND" is "COMMAND --help".
func (g *group) choose(ctx context.Context, c *call) error {
	names := make([]string, len(g.commands))
	for i, s := range g.commands {
		names[i] = s.name
	}
	c.group = g
	if len(c.args) > 0 && c.args[0] == "help" { // behind -- there would be no flag
		words := slices.DeleteFunc(slices.Clone(c.args[1:]), func(word string) bool { return word == "--" })
		c.args = append(words, "--help")
	}
	if len(c.args) == 0 {
		return c.misuse("a command is missing; there are %s", strings.Join(names, ", "))
	}
	name := c.args[0]
	if slices.Contains([]string{"-h", "-help", "--help"}, name) {
		c.printUsage()
		return flag.ErrHelp
	}
	i := slices.Index(names, name)
	if i < 0 {
		return c.misuse("no command %q; %s", name, suggestion(name, names))
	}
	in := c.invocation
	in.args = in.args[1:]
	return g.commands[i].run(ctx, newCall(in, c.flags.Name(), g.commands[i]))
}

// below are commands of dlq and outbox, for those who leave out that word.
var below = map[string]string{
	"list": "dlq", "groups": "dlq", "show": "dlq", "redrive": "dlq", "discard": "dlq", "export": "dlq", "import": "dlq",
	"migrate": "outbox", "status": "outbox", "retry": "outbox", "prune": "outbox",
}

// suggestion names the known word that was probably meant, else all known words.
func suggestion(word string, known []string) string {
	if above := below[word]; above != "" {
		return "did you mean " + above + " " + word + "?"
	}
	if nearest := config.Nearest(word, known); nearest != "" {
		return "did you mean " + nearest + "?"
	}
	return "there are " + strings.Join(known, ", ")
}

func newCall(in invocation, above string, s subcommand) *call {
	flags := flag.NewFlagSet(strings.TrimSpace(above+" "+s.name), flag.ContinueOnError)
	flags.SetOutput(io.Discard) // its words are not ours
	return &call{invocation: in, subcommand: s, flags: flags, out: newOutput(in.stdout)}
}

// load reads the flags of a command that takes no words, and the configuration.
func (c *call) load() (*config.Config, error) {
	if err := c.parse(0); err != nil {
		return nil, err
	}
	return loadConfig(c.environ)
}

// twoDashes rewrites the errors of package flag.
var twoDashes = strings.NewReplacer("needs an argument: -", "needs an argument: --", "\" for flag -",
	"\" for flag --", "\" for -", "\" for --")

// parse reads flags and words in any order; most is how many words there may be, -1 for any number.
func (c *call) parse(most int) (err error) {
	c.words, err = interleaved(c.flags, c.args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		c.printUsage()
		return err
	case err != nil:
		return c.misuse("%s", c.flagError(err.Error()))
	case most >= 0 && len(c.words) > most:
		return c.misuse("unexpected argument %q", c.words[most])
	}
	return c.wrong
}

func (c *call) flagError(text string) string {
	name, unknown := strings.CutPrefix(text, "flag provided but not defined: -")
	if !unknown {
		return twoDashes.Replace(text)
	}
	known := []string{"help"}
	c.flags.VisitAll(func(f *flag.Flag) { known = append(known, f.Name) })
	if nearest := config.Nearest(name, known); nearest != "" {
		return fmt.Sprintf("no flag --%s; did you mean --%s?", terminal.Line(name), nearest)
	}
	return "no flag --" + terminal.Line(name)
}

// interleaved reads flags and words in any order; after -- there are only words.
func interleaved(flags *flag.FlagSet, args []string) (words []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		rest := flags.Args()
		read := len(args) - len(rest)
		if len(rest) == 0 || read > 0 && args[read-1] == "--" {
			return append(words, rest...), nil
		}
		words, args = append(words, rest[0]), rest[1:]
	}
}

func (c *call) misuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w (%s --help)", errUsage, fmt.Errorf(format, args...), c.flags.Name())
}

// failed is how a command ends badly: a sentence that says what to do next.
func (c *call) failed(format string, args ...any) error {
	return errors.New(strings.TrimPrefix(c.flags.Name(), "sidecar ") + ": " + terminal.Line(fmt.Sprintf(format, args...)))
}

// oneLine is the text of an error, which may be several joined ones.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}

func (c *call) duration(d *time.Duration, name, usage string, least time.Duration) {
	c.flags.Func(name, usage, func(value string) (err error) {
		if *d, err = time.ParseDuration(value); err != nil || *d < least {
			return errors.New("want a duration such as 90s or 5m")
		}
		return nil
	})
}

// wordFlag is the value of a flag for which there are known words.
type wordFlag struct {
	known     []string
	set       func(string) error
	condition bool // it chooses messages
}

func (w *wordFlag) String() string         { return "" }
func (w *wordFlag) Set(value string) error { return w.set(value) }

func (c *call) choice(value *string, name, usage string, known []string) {
	c.flags.Var(&wordFlag{known: known, set: func(v string) error {
		if *value = strings.ToLower(v); !slices.Contains(known, *value) {
			return errors.New(suggestion(*value, known))
		}
		return nil
	}}, name, usage)
}

// document writes v as one line of JSON.
func (c *call) document(v any) error {
	e := json.NewEncoder(c.out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// say writes one line for people to standard output.
func (c *call) say(format string, args ...any) {
	_, _ = fmt.Fprintf(c.out, format+"\n", args...) // the flush reports what goes wrong
}
