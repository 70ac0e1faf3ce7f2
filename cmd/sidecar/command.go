package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"sidecar/internal/app"
	"sidecar/internal/config"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 64 // the configuration or the command line is wrong: EX_USAGE
)

// invocation is what a subcommand gets to work with.
type invocation struct {
	args           []string
	environ        []string
	stdin          io.Reader
	stdout, stderr io.Writer
}

type command struct {
	name, summary string
	run           func(ctx context.Context, in invocation) error
}

// commands in the order of the help text. A function, because help lists the commands it is one of.
func commands() []command {
	return []command{
		{"run", "consume the queue and POST to the app; publish what the app POSTs or has written into its outbox (the " +
			"default)", runSidecar},
		{"check", "connect and prove that retried and parked messages would be kept; changes nothing. --roundtrip sends a " +
			"message through queues of its own, too", check},
		{"plan", "print what would be declared: --format text|mermaid|definitions|permissions; needs no broker", plan},
		{"explain", "print the verdict on an answer and why: --status 503 --retry 10", explain},
		{"config", "print the effective configuration, secrets masked", printConfig},
		{"dlq", "list, understand, redrive, discard, export or import parked messages; needs no running sidecar", dlq},
		{"outbox", "migrate, inspect, prune or retry the table of messages to be published; needs no running sidecar and " +
			"no broker", outboxTable},
		{"drain", "ask the running sidecar to drain and wait until it has", drain},
		{"health", "ask the running sidecar whether it is live|ready|startup (default ready)", health},
		{"version", "print version, commit and Go version", printVersion},
	}
}

// errUsage marks errors of the command line.
var errUsage = errors.New("usage")

// run chooses and runs the subcommand. It returns the exit code: 0 done or drained, 64 configuration or command line
// wrong, 1 anything else.
func run(ctx context.Context, args, environ []string, stdin io.Reader, stdout, stderr io.Writer) int {
	app.DisableCoreDumps() // before the first secret is read
	name := "run"
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	if name == "help" || name == "-h" || name == "--help" {
		printHelp(stdout)
		return exitOK
	}
	for _, c := range commands() {
		if c.name == name {
			return exitCode(c.run(ctx, invocation{args, environ, stdin, stdout, stderr}), stderr)
		}
	}
	_, _ = fmt.Fprintf(stderr, "sidecar: no subcommand %q\n", name)
	printHelp(stderr)
	return exitUsage
}

func exitCode(err error, stderr io.Writer) int {
	var problems *config.Errors
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.As(err, &problems):
		_, _ = fmt.Fprintln(stderr, problems)
		return exitUsage
	case errors.Is(err, errUsage), errors.Is(err, app.ErrConfig):
		_, _ = fmt.Fprintf(stderr, "sidecar: %v\n", err)
		return exitUsage
	}
	_, _ = fmt.Fprintf(stderr, "sidecar: %v\n", err)
	return exitFailed
}

func printHelp(w io.Writer) {
	_, _ = fmt.Fprint(w, "usage: sidecar [command]\n\n")
	for _, c := range commands() {
		_, _ = fmt.Fprintf(w, "  %-8s  %s\n", c.name, c.summary)
	}
	_, _ = fmt.Fprint(w, "\nConfigured by environment variables only, see docs/configuration.md; SIDECAR_SERVICE is "+
		"required.\n")
}

// parse reads a subcommand's flags; positional is how many further words it takes at the most.
func (in invocation) parse(f *flag.FlagSet, positional int) error {
	f.SetOutput(in.stderr)
	if err := f.Parse(in.args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %s: %w", errUsage, f.Name(), err)
	}
	if f.NArg() > positional {
		return fmt.Errorf("%w: %s: unexpected argument %q", errUsage, f.Name(), f.Arg(positional))
	}
	return nil
}

// load reads a subcommand's flags and the configuration.
func (in invocation) load(f *flag.FlagSet) (*config.Config, error) {
	if err := in.parse(f, 0); err != nil {
		return nil, err
	}
	return loadConfig(in.environ)
}

// loadConfig reads the configuration, with the container's memory limit to measure it against and the topology's
// judgement.
func loadConfig(environ []string) (*config.Config, error) {
	return config.Load(environ, config.MemoryLimit(app.MemoryLimit()), app.TopologyRule(), app.OutboxRule())
}
