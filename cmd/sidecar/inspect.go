package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"sidecar/internal/app"
)

func check(ctx context.Context, in invocation) error {
	roundtrip := in.flags.Bool("roundtrip", false, "send a message through queues beside the service's, which are "+
		"removed again, to an app of this command's own")
	cfg, err := in.load()
	if err != nil {
		return err
	}
	if *roundtrip {
		err = app.RoundTrip(ctx, cfg, app.Build{Version: version, Commit: commit}, in.stdout)
	}
	return errors.Join(err, app.Check(ctx, cfg, in.stdout))
}

func printConfig(_ context.Context, in invocation) error {
	cfg, err := in.load()
	if err != nil {
		return err
	}
	preset, warnings, err := app.PresetValues(cfg)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(in.stdout, 0, 0, 2, ' ', 0)
	for _, s := range cfg.Effective() {
		if s.Value == "" { // what the topology makes of the others
			s.Value = preset[s.Name]
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Value, s.Origin)
	}
	for _, warning := range warnings {
		_, _ = fmt.Fprintf(in.stderr, "warning: %s\n", warning)
	}
	return w.Flush()
}

func plan(_ context.Context, in invocation) error {
	format := in.flags.String("format", "text", "text, mermaid, definitions (a definitions.json for rabbitmqctl "+
		"import_definitions) or permissions (the least a broker user needs)")
	if err := in.parse(0); err != nil {
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

// explain needs no service to say what an answer means: without one it explains for an imaginary service.
func explain(_ context.Context, in invocation) error {
	q := app.Question{}
	in.flags.IntVar(&q.Status, "status", 0, "HTTP status of the answer")
	in.flags.StringVar(&q.Failure, "failure", "", "instead of a status: refused, timeout, reset, malformed or too_large")
	in.flags.IntVar(&q.RetryCount, "retry", 0, "retries the message has behind it (Amqp-Retry-Count)")
	in.flags.StringVar(&q.Disposition, "disposition", "", "Amqp-Disposition of the answer")
	in.flags.StringVar(&q.Body, "body", "", "body of the answer, for SIDECAR_RESPONSE_DIALECT")
	in.flags.DurationVar(&q.RetryAfter, "retry-after", -1*time.Second, "Retry-After of the answer")
	if err := in.parse(0); err != nil {
		return err
	}
	switch {
	case (q.Status == 0) == (q.Failure == ""):
		return fmt.Errorf("%w: explain: give either --status or --failure", errUsage)
	case q.Status < 0 || q.Status > 999:
		return fmt.Errorf("%w: explain: --status %d is not between 0 and 999", errUsage, q.Status)
	case q.RetryCount < 0:
		return fmt.Errorf("%w: explain: --retry %d is negative", errUsage, q.RetryCount)
	}
	// Of two equal names the first one counts.
	cfg, err := loadConfig(append(slices.Clone(in.environ), "SIDECAR_SERVICE=example-service"))
	if err != nil {
		return err
	}
	text, err := app.Explain(cfg, q)
	if err != nil {
		return fmt.Errorf("%w: explain: %w", errUsage, err)
	}
	_, err = fmt.Fprint(in.stdout, text)
	return err
}
