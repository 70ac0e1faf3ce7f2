package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sidecar/internal/config"
	"sidecar/internal/deadletter"
	"sidecar/internal/terminal"
)

// subcommand is `sidecar`, or one of the commands below it, below `sidecar dlq` or below `sidecar outbox`.
type subcommand struct {
	name, arguments, summary string

	most     int                     // arguments that are not flags; -1 = any number
	prepare  func(c *call) execution // declares the flags; nil for a group without any
	examples []string                // what follows the command, without its name

	description, notes string       // of a group: in place of summary, and at the end of the help
	below              []subcommand // of a group: its commands
}

// execution does what a command is for, once its flags are read.
type execution func(ctx context.Context) error

// call is one use of a subcommand.
type call struct {
	invocation

	cmd         *cobra.Command
	flags       *pflag.FlagSet // of cmd
	words       []string       // arguments that are not flags, in order
	out         *output        // stdout; the end of a command flushes it
	json, quiet bool

	subscription string // of dlq: the only one whose messages are asked for
	named        bool   // subscriptions have names

	filter deadletter.Filter // of dlq: the conditions
	wrong  error             // the first mistake in a condition
	as     string            // who acts; "" is the user on this host
	log    *slog.Logger      // of what an action has changed
}

// notes is the annotation of a command for the end of its help.
const notes = "notes"

// command makes the command that s describes, with those below it.
func (s *subcommand) command(in invocation) *cobra.Command {
	cmd := &cobra.Command{
		Use: strings.TrimSpace(s.name + " " + s.arguments), Short: s.summary, Long: s.description,
		Example: strings.Join(s.examples, "\n"), Annotations: map[string]string{notes: s.notes},
		Args: cobra.ArbitraryArgs, DisableFlagsInUseLine: true, DisableFlagParsing: s.below != nil,
	}
	c := &call{invocation: in, cmd: cmd, flags: cmd.Flags()}
	var do execution
	if s.prepare != nil {
		do = s.prepare(c)
	}
	for i := range s.below {
		cmd.AddCommand(s.below[i].command(in))
	}
	cmd.RunE = func(_ *cobra.Command, words []string) error {
		c.words, c.out = words, newOutput(in.stdout)
		switch {
		case s.below != nil:
			return choose(cmd, words)
		case s.most >= 0 && len(words) > s.most:
			return c.misuse("unexpected argument %q", words[s.most])
		case c.wrong != nil:
			return c.wrong
		case cmd.Parent().HasParent():
			return interruptibly(cmd.Context(), do)
		}
		return do(cmd.Context())
	}
	return cmd
}

// interruptibly ends do at a safe point with the first SIGINT or SIGTERM; the second one ends the process at once.
func interruptibly(ctx context.Context, do execution) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return do(ctx)
}

// choose is for words that name no command below cmd. "help COMMAND" is "COMMAND --help".
func choose(cmd *cobra.Command, words []string) error {
	names := namesOf(cmd.Commands())
	switch {
	case len(words) == 0:
		return misuse(cmd, "a command is missing; there are %s", strings.Join(names, ", "))
	case slices.Contains([]string{"-h", "--help"}, words[0]):
		return cmd.Help()
	case words[0] == "help":
		return showHelp(cmd, words[1:])
	}
	return misuse(cmd, "no command %q; %s", words[0], suggestion(words[0], names, cmd.Commands()))
}

// showHelp prints the help of the command below cmd that words name.
func showHelp(cmd *cobra.Command, words []string) error {
	words = slices.DeleteFunc(slices.Clone(words), func(word string) bool { return strings.HasPrefix(word, "-") })
	at, rest, err := cmd.Find(words)
	switch {
	case err != nil:
		return misuse(cmd, "%w", err)
	case len(rest) > 0 && at.HasSubCommands():
		return choose(at, rest)
	}
	return at.Help()
}

func namesOf(commands []*cobra.Command) (names []string) {
	for _, c := range commands {
		names = append(names, c.Name())
	}
	return names
}

// suggestion names the known word that was probably meant, else all known words. A command may have been meant that is
// below one of the groups.
func suggestion(word string, known []string, groups []*cobra.Command) string {
	for _, above := range groups {
		if slices.Contains(namesOf(above.Commands()), word) {
			return "did you mean " + above.Name() + " " + word + "?"
		}
	}
	if nearest := config.Nearest(word, known); nearest != "" {
		return "did you mean " + nearest + "?"
	}
	return "there are " + strings.Join(known, ", ")
}

// load reads the configuration.
func (c *call) load() (*config.Config, error) { return loadConfig(c.environ) }

// flagError says which flag is wrong, and which one was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		why := bad.Unwrap()
		if number, ok := errors.AsType[*strconv.NumError](why); ok { // its text names a function of Go
			why = number.Err
		}
		return misuse(cmd, "invalid value %q for flag --%s: %w", bad.GetValue(), bad.GetFlag().Name, why)
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return misuse(cmd, "%w", err)
	}
	dashes, name := "--", unknown.GetSpecifiedName()
	if letters := unknown.GetSpecifiedShortnames(); letters != "" {
		dashes, name = "-", letters
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if nearest := config.Nearest(name, known); nearest != "" {
		return misuse(cmd, "no flag %s%s; did you mean --%s?", dashes, terminal.Line(name), nearest)
	}
	return misuse(cmd, "no flag %s%s", dashes, terminal.Line(name))
}

func misuse(cmd *cobra.Command, format string, args ...any) error {
	return fmt.Errorf("%w: %w (%s --help)", errUsage, fmt.Errorf(format, args...), cmd.CommandPath())
}

func (c *call) misuse(format string, args ...any) error { return misuse(c.cmd, format, args...) }

// failed is how a command ends badly: a sentence that says what to do next.
func (c *call) failed(format string, args ...any) error {
	return errors.New(strings.TrimPrefix(c.cmd.CommandPath(), "sidecar ") + ": " +
		terminal.Line(fmt.Sprintf(format, args...)))
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

// choice declares a flag that takes one of the known words.
func (c *call) choice(value *string, name, usage string, known []string) {
	c.flags.Func(name, usage, func(v string) error {
		if *value = strings.ToLower(v); !slices.Contains(known, *value) {
			return errors.New(suggestion(*value, known, nil))
		}
		return nil
	})
	c.completes(name, known)
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
