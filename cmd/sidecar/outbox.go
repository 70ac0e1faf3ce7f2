package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sidecar/internal/config"
	"sidecar/internal/outbox"
	"sidecar/internal/terminal"
)

var outboxGroup = subcommand{
	name: "outbox", arguments: "COMMAND",
	summary: "migrate, inspect, prune or retry the table of messages to be published; needs no running sidecar and no " +
		"broker",
	description: "Works on the table of SIDECAR_OUTBOX_TABLE, in the database of SIDECAR_OUTBOX_DSN. The environment is " +
		"that of sidecar run; no sidecar needs to run, and no broker.",
	notes: "migrate needs the owner of the table, or a role that may create it in its schema: set another " +
		"SIDECAR_OUTBOX_DSN for this command. Every command takes --help. " + exitCodes,
	examples: []string{"migrate", "status --json"},
	below: []subcommand{
		{name: "migrate", prepare: outboxMigrate, examples: []string{"", "--print | psql", "--no-notify"},
			summary: "make the table, or add to an existing one what the relay needs; the app may go on inserting"},
		{name: "status", prepare: outboxStatus, examples: []string{"", "--json"},
			summary: "how many rows wait, for how long, and which were given up"},
		{name: "prune", prepare: outboxPrune, examples: []string{"", "--older-than 24h"},
			summary: "delete rows that were sent, and no others"},
		{name: "retry", arguments: "ID...|--all", most: -1, prepare: outboxRetry,
			examples: []string{"4711 4712", "--all"},
			summary:  "release rows from the quarantine: they are due at once, attempts count from zero again"},
	},
}

// outboxCall is one use of a command below `sidecar outbox`, with a connection to the database.
type outboxCall struct {
	*call

	cfg   *config.Config
	names outbox.Names
	conn  *outbox.Conn
}

func (c *call) takesJSON() {
	c.flags.BoolVar(&c.json, "json", false, "one JSON document on standard output")
}

// onOutbox reads the configuration, connects to the database, runs do, writes the rest of the output and says what
// failed.
func (c *call) onOutbox(ctx context.Context, do func(*outboxCall) error) error {
	cfg, err := loadConfig(c.environ)
	if err != nil {
		return err
	}
	dsn := &cfg.Outbox.DSN
	if !dsn.IsSet() {
		return fmt.Errorf("%w: SIDECAR_OUTBOX_DSN is not set: postgres://user:password@host:5432/database", errUsage)
	}
	db := outbox.Database{DSN: dsn.Value, Name: c.cmd.CommandPath()}
	conn, err := db.Connect(ctx, nil)
	if err == nil {
		defer outbox.Close(conn)
		o := outboxCall{c, cfg, outbox.ParseTable(cfg.Outbox.Table, cfg.Outbox.Columns), conn}
		err = errors.Join(do(&o), c.out.Flush())
	}
	switch {
	case errors.Is(err, outbox.ErrDSN):
		return fmt.Errorf("%w: SIDECAR_OUTBOX_DSN: %w", errUsage, err)
	case err == nil, errors.Is(err, errUsage):
		return err
	case ctx.Err() != nil:
		return c.failed("stopped by a signal: %s", oneLine(err))
	case errors.Is(err, outbox.ErrNoTable) && c.cmd.Name() != "migrate":
		return c.failed("%s; sidecar outbox migrate makes it", oneLine(err))
	}
	fix := "" // the database's own words name the user, the database, the table or the right
	if strings.Contains(err.Error(), "connect to the database") {
		fix = ": check SIDECAR_OUTBOX_DSN: host, port, user, password, database, and sslmode (disable without TLS)"
	}
	return c.failed("%s%s", oneLine(err), fix)
}

// result writes v with --json, else a line for people.
func (c *call) result(v any, format string, args ...any) error {
	if c.json {
		return c.document(v)
	}
	c.say(format, args...)
	return nil
}

func outboxStatus(c *call) execution {
	c.takesJSON()
	return func(ctx context.Context) error {
		return c.onOutbox(ctx, func(o *outboxCall) error {
			s, err := outbox.ReadStatus(ctx, o.conn, o.names)
			if err != nil {
				return err
			}
			if c.json {
				return c.document(s)
			}
			return o.printStatus(s)
		})
	}
}

func (c *outboxCall) printStatus(s *outbox.Status) error {
	notify := "inserts notify an idle relay"
	if !s.Notify {
		notify = "off: the relay checks every " + c.cfg.Outbox.PollInterval.String()
	}
	lag := time.Duration(s.Lag * float64(time.Second)).Round(10 * time.Millisecond)
	c.say("table        %s", terminal.Line(s.Table))
	c.say("pending      %s, %d of them due later, %d failed before", atMost(s.Pending), s.Waiting, s.Failing)
	c.say("lag          %s", lag)
	c.say("quarantined  %s", atMost(s.Quarantined))
	c.say("notify       %s", notify)
	if s.Hidden {
		c.say("policies     row level security may hide rows from this role: those are not counted here, and a relay with " +
			"this role never sends them")
	}
	for _, m := range s.Missing {
		first, _, _ := strings.Cut(m, "\n")
		c.say("missing      %s (sidecar outbox migrate)", terminal.Line(first))
	}
	if len(s.Rows) == 0 {
		return nil
	}
	c.say("")
	t, now := c.table([]column{
		{title: "QUARANTINED ROW"}, {title: "ATTEMPTS", right: true}, {title: "SINCE"}, {title: "LAST ERROR", least: 16},
	}), time.Now()
	for _, r := range s.Rows {
		if err := t.add(r.ID, strconv.Itoa(r.Attempts), ago(r.Since, now), r.Error); err != nil {
			return err
		}
	}
	return t.flush()
}

// atMost is a number of rows, which are counted up to a limit.
func atMost(n int) string {
	if n >= outbox.StatusLimit {
		return "at least " + strconv.Itoa(n)
	}
	return strconv.Itoa(n)
}

func outboxRetry(c *call) execution {
	c.takesJSON()
	all := c.flags.Bool("all", false, "every row that is in quarantine")
	return func(ctx context.Context) error {
		if *all == (len(c.words) > 0) {
			return c.misuse("want the ids of rows, or --all")
		}
		return c.onOutbox(ctx, func(o *outboxCall) error {
			t, err := outbox.Ready(ctx, o.conn, o.names)
			if err != nil {
				return err
			}
			var done outbox.Released
			if *all {
				done, err = outbox.RetryAll(ctx, o.conn, t)
			} else {
				done, err = outbox.Retry(ctx, o.conn, t, c.words)
			}
			switch {
			case errors.Is(err, outbox.ErrID):
				return c.misuse("%w", err)
			case err != nil && done.Released == 0:
				return err
			}
			err = errors.Join(err, c.result(done, "%s released", number(int(done.Released), "row")))
			if err == nil && len(done.Missing) > 0 {
				err = fmt.Errorf("not in quarantine: %s; sidecar outbox status lists what is", strings.Join(done.Missing, ", "))
			}
			return err
		})
	}
}

// pruneAge is how long sent rows are kept by default: a week to inspect them.
const pruneAge = 7 * 24 * time.Hour

func outboxPrune(c *call) execution {
	c.takesJSON()
	var older time.Duration
	c.duration(&older, "older-than", "`AGE` of the rows to delete, by the time they were sent (default: "+
		"SIDECAR_OUTBOX_RETENTION, else 168h)", 1)
	return func(ctx context.Context) error {
		return c.onOutbox(ctx, func(o *outboxCall) error {
			t, err := outbox.Ready(ctx, o.conn, o.names)
			if err != nil {
				return err
			}
			older = cmp.Or(older, o.cfg.Outbox.Retention, pruneAge)
			done, err := outbox.Prune(ctx, o.conn, t, older, nil)
			if err != nil && done.Deleted == 0 {
				return err
			}
			return errors.Join(err, c.result(done, "%d of %s deleted: sent more than %s ago", done.Deleted,
				number(int(done.Scanned), "row"), older))
		})
	}
}

func outboxMigrate(c *call) execution {
	dry := c.flags.Bool("print", false, "write the SQL to standard output and change nothing; needs no right but to "+
		"connect")
	quiet := c.flags.Bool("no-notify", false, "without the trigger that notifies an idle relay, which then checks every "+
		"SIDECAR_OUTBOX_POLL_INTERVAL; removes it where it is")
	return func(ctx context.Context) error {
		return c.onOutbox(ctx, func(o *outboxCall) error {
			if *dry {
				m, err := outbox.PlanMigration(ctx, o.conn, o.names, !*quiet)
				if err != nil {
					return err
				}
				return m.Print(c.out)
			}
			m, err := outbox.Migrate(ctx, o.conn, o.names, !*quiet, func(sql string) {
				first, _, _ := strings.Cut(sql, "\n")
				_, _ = fmt.Fprintln(c.stderr, terminal.Line(strings.TrimSuffix(first, " (")))
			})
			if err != nil {
				return err
			}
			table := terminal.Line(m.Table.String())
			switch {
			case m.Done():
				c.say("table %s is complete: nothing to do", table)
			case m.Create:
				c.say("table %s was made", table)
			default:
				c.say("table %s has what was missing: %s", table, number(len(m.Inside)+len(m.Outside), "statement"))
			}
			return nil
		})
	}
}
