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
	"strings"
	"syscall"

	"sidecar/internal/app"
	"sidecar/internal/config"
	"sidecar/internal/terminal"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// Set by the linker.
var (
	version = "dev"
	commit  = "unknown"
)

const (
	exitOK      = 0
	exitFailed  = 1
	exitMissing = 2  // check: run would make all that is missing
	exitUsage   = 64 // the configuration or the command line is wrong: EX_USAGE
)

// exitCodes is for the help and for the manual page.
const exitCodes = "Exit codes: 0 done, also when there was nothing to do; 64 wrong command line or configuration; 2 " +
	"of check: objects are missing that run makes, and nothing else is wrong; 1 anything else."

// invocation is what a command gets from the process.
type invocation struct {
	root           *subcommand // all commands
	args           []string
	environ        []string
	stdin          io.Reader
	stdout, stderr io.Writer
}

// commands in the order of the help text.
var commands = []subcommand{
	{"run", "", "consume the queue and POST to the app; publish what the app POSTs or has written into its outbox (the " +
		"default)", runSidecar, []string{""}},
	{"check", "", "connect and prove that retried and parked messages would be kept; SIDECAR_MANAGEMENT_URL adds " +
		"bindings and policies to what it sees; changes nothing without --roundtrip", check,
		[]string{"", "--roundtrip", "--json"}},
	{"plan", "", "print what would be declared; needs no broker", plan, []string{
		"", "--format definitions > definitions.json", "--json > plan.json",
	}},
	{"explain", "--status N|--failure KIND", "print the verdict on an answer and why; needs no broker", explain, []string{
		"--status 503 --retry 10", "--failure timeout --json",
	}},
	{"config", "", "print the effective configuration and where each value comes from, secrets masked", printConfig,
		[]string{"", "--changed", "--json"}},
	{"dlq", "COMMAND", "list, understand, redrive, discard, export or import parked messages; needs no running sidecar",
		dlq, []string{ // from an alert to a repaired queue
			"groups                                   # what fails",
			"list --group 5b7c0d1e9f24                # which messages",
			"show order-4711                          # with its body",
			"redrive --canary 3 --group 5b7c0d1e9f24  # three, then all",
		}},
	{"outbox", "COMMAND", "migrate, inspect, prune or retry the table of messages to be published; needs no running " +
		"sidecar and no broker", outboxGroup.run, []string{"migrate", "status --json"}},
	{"drain", "", "ask the running sidecar to drain and wait until it has", drain, []string{""}},
	{"health", "[live|ready|startup]", "ask the running sidecar whether it is live, ready (the default) or started",
		health, []string{"", "live"}},
	{"completion", "bash|zsh|fish", "print a script by which the shell completes commands, flags and their values",
		completion, []string{"bash > /etc/bash_completion.d/sidecar", "fish | source"}},
	{"man", "", "print the manual page, sidecar(1)", man, []string{"| man -l -"}},
	{"version", "", "print version, commit and Go version; --version is the same", printVersion, []string{"", "--json"}},
	{"help", "[COMMAND]", "print the help of a command", help, []string{"dlq redrive"}},
}

var errUsage = errors.New("usage")

func run(ctx context.Context, args, environ []string, stdin io.Reader, stdout, stderr io.Writer) int {
	app.DisableCoreDumps() // before the first secret is read
	switch {
	case len(args) == 0:
		args = []string{"run"}
	case args[0] == "--version", args[0] == "-V":
		args = append([]string{"version"}, args[1:]...)
	}
	all := group{
		commands: commands, description: "Consumes a service's RabbitMQ queue and POSTs every message to the local app.",
		notes: "Every command takes --help. Configured by environment variables only, see docs/configuration.md; " +
			"SIDECAR_SERVICE is required. " + exitCodes,
	}
	root := &subcommand{"sidecar", "[COMMAND]", "", all.choose, []string{"check", "dlq groups", "help dlq redrive"}}
	in := invocation{root, args, environ, stdin, safe(stdout), safe(stderr)}
	return in.exitCode(root.run(ctx, newCall(in, "", *root)))
}

// help prints its own help, for `help help`: choose runs `help X` as `X --help`.
func help(_ context.Context, c *call) error { return c.parse(-1) }

func (in *invocation) exitCode(err error) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if problems, ok := errors.AsType[*config.Errors](err); ok {
		_, _ = fmt.Fprintln(in.stderr, terminal.Lines(problems.Error()))
		return exitUsage
	}
	_, _ = fmt.Fprintf(in.stderr, "%s %s\n", in.painted(in.stderr, "sidecar:", red),
		terminal.Lines(strings.TrimPrefix(err.Error(), errUsage.Error()+": ")))
	if errors.Is(err, errUsage) || errors.Is(err, app.ErrConfig) {
		return exitUsage
	}
	if errors.Is(err, app.ErrMissing) {
		return exitMissing
	}
	return exitFailed
}

// loadConfig reads the configuration, with the container's memory limit to measure it against and the topology's
// judgement.
func loadConfig(environ []string) (*config.Config, error) {
	return config.Load(environ, app.MemoryLimit(), app.Rule)
}

func printVersion(_ context.Context, c *call) error {
	c.takesJSON()
	if err := c.parse(0); err != nil {
		return err
	}
	v := map[string]string{"version": version, "commit": commit, "go": runtime.Version()}
	return errors.Join(c.result(v, "sidecar %s (commit %s, %s)", version, commit, v["go"]), c.out.Flush())
}

// runSidecar runs until SIGTERM or SIGINT has drained it. A second signal stops at once. SIGHUP is ignored.
func runSidecar(ctx context.Context, c *call) error {
	// On one core, unless GOMAXPROCS says how many. A sidecar's work is short system calls: on one core they follow one
	// another; on several every message wakes threads on other cores, and idle ones spin in search of work. First of all,
	// because each core that had allocated leaves half-used pages behind.
	if c.getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	cfg, err := c.load()
	if err != nil {
		return err
	}
	if _, screen := terminalWidth(c.stdout); screen && cfg.Process.LogFormat == "auto" {
		cfg.Process.LogFormat = "text"
	}
	a, err := app.New(cfg, app.Build{Version: version, Commit: commit}, raw(c.stdout))
	if err != nil {
		return err
	}
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
