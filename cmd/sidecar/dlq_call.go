package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"sidecar/internal/app"
	"sidecar/internal/deadletter"
)

// dlqCall is one use of a dlqCommand.
type dlqCall struct {
	invocation
	command dlqCommand
	flags   *flag.FlagSet
	out     *bufio.Writer // stdout; finish or flush writes what is left

	words       []string // what is no flag, in its order
	conditions  [][2]string
	filter      deadletter.Filter // the conditions, once parsed
	limit       int               // of an action; 0 = all
	json, quiet bool
}

func newDLQCall(in invocation, command dlqCommand) *dlqCall {
	c := &dlqCall{
		invocation: in, command: command, out: bufio.NewWriter(in.stdout),
		flags: flag.NewFlagSet("dlq "+command.name, flag.ContinueOnError),
	}
	c.flags.SetOutput(io.Discard) // its words are not ours
	c.flags.BoolVar(&c.json, "json", false, "JSON for scripts on standard output, one document per line")
	c.flags.BoolVar(&c.quiet, "quiet", false, "no progress and no notes on standard error; errors still")
	c.flags.BoolVar(&c.quiet, "q", false, "")
	return c
}

// takesConditions adds a flag for every condition of a filter.
func (c *dlqCall) takesConditions() {
	for _, known := range deadletter.Conditions {
		c.flags.Func(known[0], known[1], func(value string) error {
			c.conditions = append(c.conditions, [2]string{known[0], value})
			return nil
		})
	}
}

// count adds a flag for a whole number from 0 on.
func (c *dlqCall) count(n *int, name, usage string) {
	c.flags.Func(name, usage, func(value string) (err error) {
		if *n, err = strconv.Atoi(value); err != nil || *n < 0 {
			return errors.New("want a whole number from 0 on")
		}
		return nil
	})
}

// parse reads flags and words in any order; most is how many words there may be, -1 for any number.
func (c *dlqCall) parse(most int) error {
	words, err := interleaved(c.flags, c.args)
	if errors.Is(err, flag.ErrHelp) {
		c.printUsage(c.stdout)
		return err
	} else if err != nil {
		return c.misuse("%w", err)
	}
	c.words = words
	if most >= 0 && len(c.words) > most {
		return c.misuse("unexpected argument %q", c.words[most])
	}
	for _, given := range c.conditions {
		if err := c.condition(given[0], given[1]); err != nil {
			return err
		}
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

// condition adds one condition to the filter.
func (c *dlqCall) condition(name, value string) error {
	if err := c.filter.Set(name, value); err != nil {
		return c.misuse("--%s", strings.TrimPrefix(err.Error(), deadletter.ErrInvalid.Error()+": "))
	}
	return nil
}

// ids takes the words for ids of messages.
func (c *dlqCall) ids() error {
	for _, word := range c.words {
		if err := c.condition("id", word); err != nil {
			return err
		}
	}
	return nil
}

// misuse is an error of the command line.
func (c *dlqCall) misuse(format string, args ...any) error {
	return misuse(c.flags, fmt.Errorf(format, args...))
}

func (c *dlqCall) printUsage(w io.Writer) {
	what := c.command.summary
	_, _ = fmt.Fprintf(w, "usage: sidecar %s %s [flags]\n\n%s%s.\n\n", c.flags.Name(), c.command.arguments, strings.ToUpper(what[:1]), what[1:])
	c.flags.VisitAll(func(f *flag.Flag) {
		condition := slices.ContainsFunc(deadletter.Conditions, func(known [2]string) bool { return known[0] == f.Name })
		if !condition && f.Usage != "" {
			printFlag(w, f)
		}
	})
	if c.flags.Lookup(deadletter.Conditions[0][0]) != nil {
		_, _ = fmt.Fprint(w, "\nConditions, which may be repeated: all of them must hold, of several values for one any.\n\n")
		for _, known := range deadletter.Conditions {
			printFlag(w, c.flags.Lookup(known[0]))
		}
	}
	_, _ = fmt.Fprint(w, "\nExamples:\n\n")
	for _, e := range c.command.examples {
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

// open reads the configuration. The queue it returns connects when it is used.
func (c *dlqCall) open() (*deadletter.Queue, error) {
	cfg, err := loadConfig(c.environ)
	if err != nil {
		return nil, err
	}
	return app.DeadLetters(cfg, app.Build{Version: version, Commit: commit}, actor(), nil)
}

// actor is who acts, as user@host.
func actor() string {
	name := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = cmp.Or(u.Username, name)
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + "@" + host
}

// document writes v as one line of JSON.
func (c *dlqCall) document(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := c.out.Write(escapeJSON(b.Bytes()))
	return err
}

// say writes one line for people to standard output.
func (c *dlqCall) say(format string, args ...any) {
	_, _ = fmt.Fprintf(c.out, format+"\n", args...) // flush reports what goes wrong
}

// note writes one line to standard error, unless that is to stay quiet.
func (c *dlqCall) note(format string, args ...any) {
	if !c.quiet {
		_, _ = fmt.Fprintln(c.stderr, printable(fmt.Sprintf(format, args...)))
	}
}
