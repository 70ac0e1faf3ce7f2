// Command sidecar consumes a service's RabbitMQ queue and POSTs every message to the local app. It only chooses the
// subcommand; everything else is in internal packages.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"sidecar/internal/app"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// Set by the linker.
var (
	version = "dev"
	commit  = "unknown"
)

func printVersion(_ context.Context, in invocation) error {
	if err := in.parse(flag.NewFlagSet("version", flag.ContinueOnError), 0); err != nil {
		return err
	}
	_, err := fmt.Fprintf(in.stdout, "sidecar %s (commit %s, %s)\n", version, commit, runtime.Version())
	return err
}

// runSidecar runs until SIGTERM or SIGINT has drained it. A second signal stops at once. SIGHUP is ignored.
func runSidecar(ctx context.Context, in invocation) error {
	cfg, err := in.load(flag.NewFlagSet("run", flag.ContinueOnError))
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
