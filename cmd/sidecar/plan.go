package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	"sidecar/internal/app"
)

func plan(_ context.Context, in invocation) error {
	flags := flag.NewFlagSet("plan", flag.ContinueOnError)
	format := flags.String("format", "text", "text, mermaid or definitions (a definitions.json for rabbitmqctl import_definitions)")
	if err := in.parse(flags, 0); err != nil {
		return err
	}
	if *format != "text" && *format != "mermaid" && *format != "definitions" {
		return fmt.Errorf("%w: plan: --format %q is not one of text, mermaid, definitions", errUsage, *format)
	}
	cfg, err := loadConfig(in.environ)
	if err != nil {
		return err
	}
	out, err := app.RenderPlan(cfg, *format)
	if err != nil {
		return err
	}
	_, err = io.WriteString(in.stdout, out)
	return err
}
