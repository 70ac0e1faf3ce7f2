package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"sidecar/internal/app"
)

func check(ctx context.Context, c *call) error {
	roundtrip := c.flags.Bool("roundtrip", false, "send a message through queues beside the service's, which are "+
		"removed again, to an app of this command's own")
	asJSON := c.flags.Bool("json", false, "one JSON object on standard output")
	cfg, err := c.load()
	if err != nil {
		return err
	}
	if *roundtrip {
		w := c.stdout
		if *asJSON {
			w = c.stderr
		}
		err = app.RoundTrip(ctx, cfg, app.Build{Version: version, Commit: commit}, w)
	}
	return errors.Join(err, app.Check(ctx, cfg, c.stdout, *asJSON))
}

func printConfig(_ context.Context, c *call) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	preset, warnings, err := app.PresetValues(cfg)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	for _, s := range cfg.Effective() {
		if s.Value == "" { // what the topology makes of the others
			s.Value = preset[s.Name]
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Value, s.Origin)
	}
	for _, warning := range warnings {
		_, _ = fmt.Fprintf(c.stderr, "warning: %s\n", warning)
	}
	return w.Flush()
}

func plan(_ context.Context, c *call) error {
	format := "text"
	c.choice(&format, "format", "`FORMAT`: text (the default), mermaid, definitions (a definitions.json for rabbitmqctl "+
		"import_definitions), permissions (the least a broker user needs) or json (a file for SIDECAR_PLAN_FILE)",
		app.PlanFormats)
	if err := c.parse(0); err != nil {
		return err
	}
	cfg, err := loadConfig(c.environ)
	if err != nil {
		return err
	}
	out, err := app.RenderPlan(cfg, format)
	if err != nil {
		return err
	}
	_, err = io.WriteString(c.stdout, out)
	return err
}

// explain needs no service to say what an answer means: without one it explains for an imaginary service.
func explain(_ context.Context, c *call) error {
	q := app.Question{RetryAfter: -1}
	c.count(&q.Status, "status", "HTTP status `N` of the answer")
	c.choice(&q.Failure, "failure", "failure of this `KIND` instead of a status: refused, timeout, reset, malformed or "+
		"too_large", app.Failures)
	c.count(&q.RetryCount, "retry", "number `N` of retries before this attempt (Amqp-Retry-Count)")
	c.choice(&q.Disposition, "disposition", "`WORD` of Amqp-Disposition in the answer: ack, retry, requeue, park or discard",
		app.Dispositions)
	c.flags.StringVar(&q.Body, "body", "", "`BODY` of the answer, for SIDECAR_RESPONSE_DIALECT")
	c.duration(&q.RetryAfter, "retry-after", "`TIME` in Retry-After of the answer, as in 30s", 0)
	if err := c.parse(0); err != nil {
		return err
	}
	switch {
	case (q.Status == 0) == (q.Failure == ""):
		return c.misuse("give either --status or --failure")
	case q.Status > 999:
		return c.misuse("--status %d is not between 0 and 999", q.Status)
	}
	// Of two equal names the first one counts.
	cfg, err := loadConfig(append(slices.Clone(c.environ), "SIDECAR_SERVICE=example-service"))
	if err != nil {
		return err
	}
	text, err := app.Explain(cfg, q)
	if err != nil {
		return c.misuse("%w", err)
	}
	_, err = fmt.Fprint(c.stdout, text)
	return err
}
