package main

import (
	"context"

	"sidecar/internal/app"
)

func check(ctx context.Context, in invocation) error {
	cfg, err := in.load("check")
	if err != nil {
		return err
	}
	return app.Check(ctx, cfg, in.stdout)
}
