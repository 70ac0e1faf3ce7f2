// Command profile is the sidecar with a CPU profile of its whole life, written to $CPUPROFILE. It takes the same
// environment as the sidecar and ends like it, on SIGTERM.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"

	"sidecar/internal/app"
	"sidecar/internal/config"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "profile:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	runtime.GOMAXPROCS(1) // as the sidecar does
	cfg, err := config.Load(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "CPUPROFILE=")
	}), 0, app.Rule)
	if err != nil {
		return err
	}
	a, err := app.New(cfg, app.Build{Version: "profile", Commit: "unknown"}, os.Stdout)
	if err != nil {
		return err
	}
	file, err := os.Create(os.Getenv("CPUPROFILE"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return a.Run(ctx, context.Background())
}
