package main

import (
	"context"
	"fmt"
	"io"
)

// outboxCommand is one of the commands below `sidecar outbox`.
type outboxCommand struct {
	name, arguments, summary string
	run                      func(ctx context.Context, c *outboxCall) error
	examples                 []string // what follows `sidecar outbox`, without the name
}

// outboxCommands in the order of the help text.
func outboxCommands() []outboxCommand {
	return []outboxCommand{
		{"migrate", "", "make the table, or add to an existing one what the relay needs; the app may go on inserting", outboxMigrate, []string{
			"", "--print | psql", "--no-notify",
		}},
		{"status", "", "how many rows wait, for how long, and which were given up", outboxStatus, []string{"", "--json"}},
		{"prune", "", "delete rows that were sent, and no others", outboxPrune, []string{"", "--older-than 24h"}},
		{"retry", "ID...|--all", "release rows from the quarantine: they are due at once, with all attempts before them", outboxRetry, []string{
			"4711 4712", "--all",
		}},
	}
}

// outboxTable chooses and runs a command on the outbox. The first SIGINT or SIGTERM ends it between two statements or cancels
// the one that runs, the second ends it at once.
func outboxTable(ctx context.Context, in invocation) error {
	all := outboxCommands()
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.name
	}
	i, err := choose(in, "outbox", names, printOutboxHelp)
	if err != nil {
		return err
	}
	ctx, stop := stoppable(ctx)
	defer stop()
	in.args = in.args[1:]
	return all[i].run(ctx, newOutboxCall(in, all[i]))
}

func printOutboxHelp(w io.Writer) {
	_, _ = fmt.Fprint(w, "usage: sidecar outbox COMMAND\n\nWorks on the table of SIDECAR_OUTBOX_TABLE, in the database of SIDECAR_OUTBOX_DSN. "+
		"The environment is that of sidecar run;\nno sidecar needs to run, and no broker.\n\n")
	for _, c := range outboxCommands() {
		_, _ = fmt.Fprintf(w, "  %-7s  %-11s  %s\n", c.name, c.arguments, c.summary)
	}
	_, _ = fmt.Fprint(w, `
The DSN may be another one than the relay's, for one command: migrate wants the owner of the table, or somebody who may make
it in its schema.

Every command takes --help. Exit codes: 0 done, also when there was nothing to do; 64 command line or configuration wrong;
1 anything else.
`)
}
