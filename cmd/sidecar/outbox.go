package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"sidecar/internal/config"
	"sidecar/internal/outbox"
)

// outboxCommands in the order of the help text.
func outboxCommands() []subcommand[*outboxCall] {
	return []subcommand[*outboxCall]{
		{"migrate", "", "make the table, or add to an existing one what the relay needs; the app may go on inserting",
			outboxMigrate, []string{
				"", "--print | psql", "--no-notify",
			}},
		{"status", "", "how many rows wait, for how long, and which were given up", outboxStatus, []string{"", "--json"}},
		{"prune", "", "delete rows that were sent, and no others", outboxPrune, []string{"", "--older-than 24h"}},
		{"retry", "ID...|--all", "release rows from the quarantine: they are due at once, with all attempts before them",
			outboxRetry, []string{
				"4711 4712", "--all",
			}},
	}
}

// outboxTable runs a command on the outbox.
func outboxTable(ctx context.Context, in invocation) error {
	return runBelow(ctx, in, "outbox", outboxCommands(), printOutboxHelp,
		func(base call) *outboxCall { return &outboxCall{call: base} })
}

func printOutboxHelp(w io.Writer) {
	_, _ = fmt.Fprint(w, "usage: sidecar outbox COMMAND\n\nWorks on the table of SIDECAR_OUTBOX_TABLE, in the database "+
		"of SIDECAR_OUTBOX_DSN. "+
		"The environment is that of sidecar run;\nno sidecar needs to run, and no broker.\n\n")
	for _, c := range outboxCommands() {
		_, _ = fmt.Fprintf(w, "  %-7s  %-11s  %s\n", c.name, c.arguments, c.summary)
	}
	_, _ = fmt.Fprint(w, `
migrate needs the owner of the table, or a role that may create it in its schema: set another SIDECAR_OUTBOX_DSN for
this command.

Every command takes --help. Exit codes: 0 done, also when there was nothing to do; 64 wrong command line or
configuration; 1 anything else.
`)
}

// outboxCall is one use of a command below `sidecar outbox`.
type outboxCall struct {
	call
	cfg   *config.Config
	names outbox.Names
}

// takesJSON adds a flag for output that is one document.
func (c *outboxCall) takesJSON() {
	c.flags.BoolVar(&c.json, "json", false, "one JSON document on standard output")
}

// parse reads flags, at most so many words, -1 for any number, and the configuration.
func (c *outboxCall) parse(most int) (err error) {
	if err = c.read(most, c.printUsage); err != nil {
		return err
	}
	if c.cfg, err = loadConfig(c.environ); err != nil {
		return err
	}
	if !c.cfg.Outbox.DSN.IsSet() {
		return fmt.Errorf("%w: %s: SIDECAR_OUTBOX_DSN is not set", errUsage, c.flags.Name())
	}
	c.names = outbox.ParseTable(c.cfg.Outbox.Table, c.cfg.Outbox.Column)
	return nil
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
	case errors.Is(err, outbox.ErrNoTable) && c.name != "migrate":
		return &failure{c.flags.Name() + ": " + printable(oneLine(err)) + "; sidecar outbox migrate makes it", err}
	}
	return &failure{c.flags.Name() + ": " + printable(oneLine(err)), err}
}

// document writes v as one line of JSON.
func (c *outboxCall) document(v any) error { return writeJSON(c.stdout, v) }

func (c *outboxCall) say(format string, args ...any) error {
	_, err := fmt.Fprintln(c.stdout, printable(fmt.Sprintf(format, args...)))
	return err
}

func (c *outboxCall) printUsage(w io.Writer) {
	c.call.printUsage(w, func(string) bool { return true }, func() {})
}
