package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"sidecar/internal/app"
	"sidecar/internal/config"
)

func printConfig(_ context.Context, in invocation) error {
	cfg, err := in.load("config")
	if err != nil {
		return err
	}
	preset, warnings, err := app.PresetValues(cfg)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(in.stdout, 0, 0, 2, ' ', 0)
	for _, s := range cfg.Effective() {
		if s.Origin == config.OriginPreset && s.Value == "" {
			s.Value = preset[s.Name]
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Value, s.Origin)
	}
	for _, warning := range append(cfg.Warnings(), warnings...) {
		_, _ = fmt.Fprintf(in.stderr, "warning: %s\n", warning)
	}
	return w.Flush()
}
