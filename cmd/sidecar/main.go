// Command sidecar consumes a service's RabbitMQ queue and POSTs every message to the local app. It only chooses the
// subcommand; everything else is in internal packages.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
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
