// Command sidecar consumes a service's RabbitMQ queue and POSTs every message to the local app. This package has the
// subcommands: their flags, their tables and other output, and the client of the running sidecar's listeners. It does
// not use the broker and decides nothing about messages: internal packages do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"sidecar/internal/app"
	"sidecar/internal/config"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// Set by the linker.
var (
	version = "dev"
	commit  = "unknown"
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
	flags          *flag.FlagSet
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
			"no broker", outboxGroup.run},
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
			in := invocation{args, environ, stdin, stdout, stderr, flag.NewFlagSet(name, flag.ContinueOnError)}
			return exitCode(c.run(ctx, in), stderr)
		}
	}
	_, _ = fmt.Fprintf(stderr, "sidecar: no subcommand %q\n", name)
	printHelp(stderr)
	return exitUsage
}

func exitCode(err error, stderr io.Writer) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if problems, ok := errors.AsType[*config.Errors](err); ok {
		_, _ = fmt.Fprintln(stderr, problems)
		return exitUsage
	}
	_, _ = fmt.Fprintf(stderr, "sidecar: %v\n", err)
	if errors.Is(err, errUsage) || errors.Is(err, app.ErrConfig) {
		return exitUsage
	}
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
func (in invocation) parse(positional int) error {
	in.flags.SetOutput(in.stderr)
	err := in.flags.Parse(in.args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return fmt.Errorf("%w: %s: %w", errUsage, in.flags.Name(), err)
	case in.flags.NArg() > positional:
		return fmt.Errorf("%w: %s: unexpected argument %q", errUsage, in.flags.Name(), in.flags.Arg(positional))
	}
	return nil
}

// load reads a subcommand's flags and the configuration.
func (in invocation) load() (*config.Config, error) {
	if err := in.parse(0); err != nil {
		return nil, err
	}
	return loadConfig(in.environ)
}

// loadConfig reads the configuration, with the container's memory limit to measure it against and the topology's
// judgement.
func loadConfig(environ []string) (*config.Config, error) {
	return config.Load(environ, app.MemoryLimit(), app.Rule)
}

func printVersion(_ context.Context, in invocation) error {
	if err := in.parse(0); err != nil {
		return err
	}
	_, err := fmt.Fprintf(in.stdout, "sidecar %s (commit %s, %s)\n", version, commit, runtime.Version())
	return err
}

// runSidecar runs until SIGTERM or SIGINT has drained it. A second signal stops at once. SIGHUP is ignored.
func runSidecar(ctx context.Context, in invocation) error {
	cfg, err := in.load()
	if err != nil {
		return err
	}
	a, err := app.New(cfg, app.Build{Version: version, Commit: commit}, in.stdout)
	if err != nil {
		return err
	}
	useOneCore(in.environ)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	now, stopNow := context.WithCancel(context.Background())
	defer stopNow()
	// Go ends a process whose standard output is closed. A log collector that died is not a reason to stop. SIGHUP asks
	// other programs to read their files again, which happens by itself here.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() { // until the process ends
		<-signals
		stop()
		<-signals
		stopNow()
	}()
	return a.Run(ctx, now)
}

// useOneCore keeps Go's scheduler on one core, unless GOMAXPROCS in environ says how many. A sidecar's work is short
// system calls: on one core they follow one another; on several every message wakes threads on other cores, and idle
// ones spin in search of work.
func useOneCore(environ []string) {
	given := slices.ContainsFunc(environ, func(v string) bool {
		n, ok := strings.CutPrefix(v, "GOMAXPROCS=")
		return ok && n != ""
	})
	if !given {
		runtime.GOMAXPROCS(1)
	}
}
