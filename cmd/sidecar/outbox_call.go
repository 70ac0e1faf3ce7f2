package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"sidecar/internal/config"
	"sidecar/internal/outbox"
)

// outboxCall is one use of an outboxCommand.
type outboxCall struct {
	invocation
	command outboxCommand
	flags   *flag.FlagSet
	words   []string // what is no flag, in its order
	json    bool

	cfg   *config.Config
	names outbox.Names
}

func newOutboxCall(in invocation, command outboxCommand) *outboxCall {
	c := &outboxCall{invocation: in, command: command, flags: flag.NewFlagSet("outbox "+command.name, flag.ContinueOnError)}
	c.flags.SetOutput(io.Discard) // its words are not ours
	return c
}

// takesJSON adds a flag for output that is one document.
func (c *outboxCall) takesJSON() {
	c.flags.BoolVar(&c.json, "json", false, "one JSON document on standard output")
}

// parse reads flags, in any order with words, and the configuration; most is how many words there may be, -1 for any number.
func (c *outboxCall) parse(most int) error {
	words, err := interleaved(c.flags, c.args)
	if errors.Is(err, flag.ErrHelp) {
		c.printUsage(c.stdout)
		return err
	}
	if err != nil {
		return c.misuse("%w", err)
	}
	c.words = words
	if most >= 0 && len(c.words) > most {
		return c.misuse("unexpected argument %q", c.words[most])
	}
	if c.cfg, err = loadConfig(c.environ); err != nil {
		return err
	}
	if !c.cfg.Outbox.DSN.IsSet() {
		return fmt.Errorf("%w: %s: SIDECAR_OUTBOX_DSN is not set: there is no outbox", errUsage, c.flags.Name())
	}
	c.names = outbox.ParseTable(c.cfg.Outbox.Table, c.cfg.Outbox.Column)
	return nil
}

// misuse is an error of the command line.
func (c *outboxCall) misuse(format string, args ...any) error {
	return misuse(c.flags, fmt.Errorf(format, args...))
}

// connect opens a connection to the database, which the caller closes.
func (c *outboxCall) connect(ctx context.Context) (*outbox.Conn, error) {
	db := outbox.Database{DSN: c.cfg.Outbox.DSN.Value, Name: "sidecar " + c.flags.Name()}
	conn, err := db.Connect(ctx, nil)
	if errors.Is(err, outbox.ErrDSN) {
		return nil, fmt.Errorf("%w: SIDECAR_OUTBOX_DSN: %w", errUsage, err)
	}
	return conn, err
}

// table runs do with a table to which nothing is missing.
func (c *outboxCall) table(ctx context.Context, do func(conn *outbox.Conn, t *outbox.Table) error) error {
	conn, err := c.connect(ctx)
	if err != nil {
		return c.failed(ctx, err)
	}
	defer outbox.Close(conn)
	t, err := outbox.Look(ctx, conn, c.names)
	if err == nil {
		err = t.Check()
	}
	if err == nil {
		err = do(conn, t)
	}
	return c.failed(ctx, err)
}

// failed says what failed, nil if nothing did.
func (c *outboxCall) failed(ctx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, errUsage):
		return err
	case ctx.Err() != nil:
		return &failure{c.flags.Name() + ": stopped by a signal: " + printable(oneLine(err)), err}
	case errors.Is(err, outbox.ErrNoTable) && c.command.name != "migrate":
		return &failure{c.flags.Name() + ": " + printable(oneLine(err)) + "; sidecar outbox migrate makes it", err}
	}
	return &failure{c.flags.Name() + ": " + printable(oneLine(err)), err}
}

// document writes v as one line of JSON.
func (c *outboxCall) document(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = c.stdout.Write(append(escapeJSON(b), '\n'))
	return err
}

func (c *outboxCall) say(format string, args ...any) error {
	_, err := fmt.Fprintln(c.stdout, printable(fmt.Sprintf(format, args...)))
	return err
}

func (c *outboxCall) printUsage(w io.Writer) {
	what := c.command.summary
	_, _ = fmt.Fprintf(w, "usage: %s [flags]\n\n%s%s.\n\n", strings.TrimSpace("sidecar "+c.flags.Name()+" "+c.command.arguments), strings.ToUpper(what[:1]), what[1:])
	c.flags.VisitAll(func(f *flag.Flag) { printFlag(w, f) })
	_, _ = fmt.Fprint(w, "\nExamples:\n\n")
	for _, e := range c.command.examples {
		_, _ = fmt.Fprintln(w, strings.TrimRight("  sidecar "+c.flags.Name()+" "+e, " "))
	}
}
