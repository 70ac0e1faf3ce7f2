package main

import (
	"bufio"
	"cmp"
	"errors"
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

// dlqCall is one use of a command below `sidecar dlq`.
type dlqCall struct {
	call
	out *bufio.Writer // stdout; finish or flush writes what is left

	conditions [][2]string
	filter     deadletter.Filter // the conditions, once parsed
	limit      int               // of an action; 0 = all
	all, quiet bool
}

func newDLQCall(base call) *dlqCall {
	c := &dlqCall{call: base, out: bufio.NewWriter(base.stdout)}
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

// parse reads flags, conditions and at most so many words, -1 for any number.
func (c *dlqCall) parse(most int) error {
	if err := c.read(most, c.printUsage); err != nil {
		return err
	}
	for _, given := range c.conditions {
		if err := c.condition(given[0], given[1]); err != nil {
			return err
		}
	}
	return nil
}

// takesSelection adds the flags of an action that select messages.
func (c *dlqCall) takesSelection(verb string) {
	c.takesConditions()
	c.flags.BoolVar(&c.all, "all", false, "every message of this service")
	c.count(&c.limit, "limit", verb+" at most `N` messages; 0 = all that match (default 0)")
}

// parseSelection reads the command line of an action: ids, conditions or --all, and never none of them.
func (c *dlqCall) parseSelection() (s deadletter.Selection, err error) {
	if err = c.parse(-1); err != nil {
		return s, err
	}
	for _, word := range c.words {
		if err = c.condition("id", word); err != nil {
			return s, err
		}
	}
	switch {
	case c.all && !c.filter.Empty():
		return s, c.misuse("--all and a condition contradict each other")
	case !c.all && c.filter.Empty():
		return s, c.misuse("say which messages: by id, by conditions, or with --all")
	}
	return deadletter.Selection{Filter: c.filter, Limit: c.limit}, nil
}

// condition adds one condition to the filter.
func (c *dlqCall) condition(name, value string) error {
	if err := c.filter.Set(name, value); err != nil {
		return c.misuse("--%s", strings.TrimPrefix(err.Error(), deadletter.ErrInvalid.Error()+": "))
	}
	return nil
}

func (c *dlqCall) printUsage(w io.Writer) {
	isCondition := func(name string) bool {
		return slices.ContainsFunc(deadletter.Conditions, func(known [2]string) bool { return known[0] == name })
	}
	c.call.printUsage(w, func(name string) bool { return !isCondition(name) }, func() {
		if c.flags.Lookup(deadletter.Conditions[0][0]) == nil {
			return
		}
		_, _ = fmt.Fprint(w, "\nConditions, which may be repeated: all of them must hold, of several values for one any.\n\n")
		for _, known := range deadletter.Conditions {
			printFlag(w, c.flags.Lookup(known[0]))
		}
	})
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
func (c *dlqCall) document(v any) error { return writeJSON(c.out, v) }

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
