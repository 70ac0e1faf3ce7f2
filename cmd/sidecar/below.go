package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// choose finds the command below another one that the first argument names. Asking for help is flag.ErrHelp, once it was
// given.
func choose(in invocation, above string, names []string, help func(io.Writer)) (i int, err error) {
	if len(in.args) == 0 {
		help(in.stderr)
		return 0, fmt.Errorf("%w: %s: a command is missing", errUsage, above)
	}
	name := in.args[0]
	if name == "-h" || name == "-help" || name == "--help" || name == "help" {
		help(in.stdout)
		return 0, flag.ErrHelp
	}
	if i = slices.Index(names, name); i < 0 {
		return 0, fmt.Errorf("%w: %s: no command %q; there are %s", errUsage, above, name, strings.Join(names, ", "))
	}
	return i, nil
}

// stoppable ends with the first SIGINT or SIGTERM; the second ends the process.
func stoppable(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// misuse is an error of the command line of flags.
func misuse(flags *flag.FlagSet, err error) error {
	return fmt.Errorf("%w: %s: %w (sidecar %[2]s --help)", errUsage, flags.Name(), err)
}
