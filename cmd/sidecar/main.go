// Command sidecar consumes a service's RabbitMQ queue and POSTs every message to the local app. This package has the
// subcommands: their flags, their tables and other output, and the client of the running sidecar's listeners. It does
// not use the broker and decides nothing about messages: internal packages do.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"sidecar/internal/app"
	"sidecar/internal/config"
	"sidecar/internal/terminal"
)

func main() {
	cobra.EnableCommandSorting = false // they are in the order in which one needs them
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
	environ        []string
	stdin          io.Reader
	stdout, stderr io.Writer
}

// top is the command line.
var top = subcommand{
	name: "sidecar", arguments: "[COMMAND]", examples: []string{"check", "dlq groups", "help dlq redrive"},
	description: "Consumes a service's RabbitMQ queue and POSTs every message to the local app.",
	notes: "Every command takes --help. Configured by environment variables only, see docs/configuration.md; " +
		"SIDECAR_SERVICE is required. " + exitCodes,
	below: []subcommand{ // in the order of the help
		{name: "run", prepare: runSidecar, examples: []string{""},
			summary: "consume the queue and POST to the app; publish what the app POSTs or has written into its " +
				"outbox (the default)"},
		{name: "check", prepare: check, examples: []string{"", "--roundtrip", "--json"},
			summary: "connect and prove that retried and parked messages would be kept; SIDECAR_MANAGEMENT_URL adds " +
				"bindings and policies to what it sees; changes nothing without --roundtrip"},
		{name: "plan", prepare: plan,
			examples: []string{"", "--format definitions > definitions.json", "--json > plan.json"},
			summary:  "print what would be declared; needs no broker"},
		{name: "explain", arguments: "--status N|--failure KIND", prepare: explain,
			examples: []string{"--status 503 --retry 10", "--failure timeout --json"},
			summary:  "print the verdict on an answer and why; needs no broker"},
		{name: "config", prepare: printConfig, examples: []string{"", "--changed", "--json"},
			summary: "print the effective configuration and where each value comes from, secrets masked"},
		dlqGroup,
		outboxGroup,
		{name: "drain", prepare: drain, examples: []string{""},
			summary: "ask the running sidecar to drain and wait until it has"},
		{name: "health", arguments: "[live|ready|startup]", most: 1, prepare: health, examples: []string{"", "live"},
			summary: "ask the running sidecar whether it is live, ready (the default) or started"},
		{name: "completion", arguments: "bash|zsh|fish", most: -1, prepare: completion,
			examples: []string{"bash > /etc/bash_completion.d/sidecar", "fish | source"},
			summary:  "print a script by which the shell completes commands, flags and their values"},
		{name: "man", prepare: man, summary: "print the manual page, sidecar(1)", examples: []string{"| man -l -"}},
		{name: "version", prepare: printVersion, examples: []string{"", "--json"},
			summary: "print version, commit and Go version; --version is the same"},
	},
}

var helpCommand = subcommand{
	name: "help", arguments: "[COMMAND]", most: -1, prepare: help, summary: "print the help of a command",
	examples: []string{"dlq redrive"},
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
	in := invocation{environ, stdin, safe(stdout), safe(stderr)}
	if slices.Equal(args, []string{"run"}) { // the sidecar itself does without the memory of all commands
		return in.exitCode((&call{invocation: in}).consume(ctx))
	}
	return in.exitCode(commandLine(in, args).ExecuteContext(ctx))
}

// commandLine returns all commands, about to execute args.
func commandLine(in invocation, args []string) *cobra.Command {
	root := top.command(in)
	root.SetHelpCommand(helpCommand.command(in))
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { printUsage(in.stdout, cmd) })
	root.SetFlagErrorFunc(flagError)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.DisableDefaultCmd = true
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SetOut(in.stdout)
	root.SetErr(in.stderr)
	root.SetArgs(args)
	return root
}

func (in *invocation) exitCode(err error) int {
	if err == nil {
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

func printVersion(c *call) execution {
	c.takesJSON()
	return func(context.Context) error {
		v := map[string]string{"version": version, "commit": commit, "go": runtime.Version()}
		return errors.Join(c.result(v, "sidecar %s (commit %s, %s)", version, commit, v["go"]), c.out.Flush())
	}
}

// runSidecar runs until SIGTERM or SIGINT has drained it. A second signal stops at once. SIGHUP is ignored.
func runSidecar(c *call) execution {
	return func(ctx context.Context) error { return c.consume(ctx) }
}

func (c *call) consume(ctx context.Context) error {
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
