package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"sidecar/internal/app"
)

func plan(_ context.Context, in invocation) error {
	flags := flag.NewFlagSet("plan", flag.ContinueOnError)
	format := flags.String("format", "text", "text, mermaid, definitions (a definitions.json for rabbitmqctl import_definitions) or permissions (the least a broker user needs)")
	if err := in.parse(flags, 0); err != nil {
		return err
	}
	if !slices.Contains(app.PlanFormats, *format) {
		return fmt.Errorf("%w: plan: --format %q is not one of %s", errUsage, *format, strings.Join(app.PlanFormats, ", "))
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
