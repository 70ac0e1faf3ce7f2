package main

import (
	"context"
	"errors"
	"flag"

	"sidecar/internal/app"
)

func check(ctx context.Context, in invocation) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	roundtrip := flags.Bool("roundtrip", false, "send a message through queues beside the service's, which are removed again, to an app of this command's own")
	if err := in.parse(flags, 0); err != nil {
		return err
	}
	cfg, err := loadConfig(in.environ)
	if err != nil {
		return err
	}
	if *roundtrip {
		err = app.RoundTrip(ctx, cfg, app.Build{Version: version, Commit: commit}, in.stdout)
	}
	return errors.Join(err, app.Check(ctx, cfg, in.stdout))
}
