package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
)

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
