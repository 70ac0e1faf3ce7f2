package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"sidecar/internal/app"
)

func check(ctx context.Context, c *call) error {
	roundtrip := c.flags.Bool("roundtrip", false, "send a message through queues beside the service's, which are "+
		"removed again, to an app of this command's own")
	c.takesJSON()
	cfg, err := c.load()
	if err != nil {
		return err
	}
	if *roundtrip {
		w := c.stdout
		if c.json {
			w = c.stderr
		}
		err = app.RoundTrip(ctx, cfg, app.Build{Version: version, Commit: commit}, w)
	}
	return errors.Join(err, app.Check(ctx, cfg, c.out, c.json, func(word string) string {
		return c.painted(c.stdout, word, map[string]string{"problem": red, "warning": yellow, "ok": green}[word])
	}), c.out.Flush())
}

func printConfig(_ context.Context, c *call) error {
	c.takesJSON()
	cfg, err := c.load()
	if err != nil {
		return err
	}
	preset, warnings, err := app.PresetValues(cfg)
	if err != nil {
		return err
	}
	all := cfg.Effective()
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	for i, s := range all {
		all[i].Value = cmp.Or(s.Value, preset[s.Name]) // what the topology makes of the others
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, all[i].Value, s.Origin)
	}
	if c.json {
		return errors.Join(c.document(map[string]any{
			"service": cfg.Service.Name, "variables": all, "warnings": append([]string{}, warnings...),
		}), c.out.Flush())
	}
	for _, warning := range warnings {
		_, _ = fmt.Fprintf(c.stderr, "warning: %s\n", warning)
	}
	return w.Flush()
}

func plan(_ context.Context, c *call) error {
	format := "text"
	c.choice(&format, "format", "`FORMAT` of the output: text (the default), mermaid, definitions (a definitions.json "+
		"for rabbitmqctl import_definitions), permissions (the least a broker user needs) or json (a file for "+
		"SIDECAR_PLAN_FILE)", app.PlanFormats)
	c.flags.BoolVar(&c.json, "json", false, "the same as --format json")
	cfg, err := c.load()
	if err != nil {
		return err
	}
	if c.json {
		format = "json"
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
	c.takesJSON()
	q := app.Question{RetryAfter: -1}
	c.count(&q.Status, "status", "HTTP status `N` of the answer")
	c.choice(&q.Failure, "failure", "failure of this `KIND` instead of a status: "+strings.Join(app.Failures, ", "),
		app.Failures)
	c.count(&q.RetryCount, "retry", "number `N` of retries before this attempt (Amqp-Retry-Count)")
	c.choice(&q.Disposition, "disposition", "`WORD` of Amqp-Disposition in the answer: "+
		strings.Join(app.Dispositions, ", "), app.Dispositions)
	c.flags.StringVar(&q.Body, "body", "", "`BODY` of the answer, for SIDECAR_RESPONSE_DIALECT")
	c.duration(&q.RetryAfter, "retry-after", "`TIME` in Retry-After of the answer, as in 30s", 0)
	c.flags.StringVar(&q.RoutingKey, "routing-key", "", "routing `KEY` of the message: where it is POSTed, by SIDECAR_ROUTES")
	c.flags.StringVar(&q.Type, "type", "", "`TYPE` of the message, for the same")
	if err := c.parse(0); err != nil {
		return err
	}
	switch {
	case q.Status == 0 && q.Failure == "" && q.RoutingKey+q.Type != "":
		q.Status = 200
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
	e, err := app.Explain(cfg, q)
	if err != nil {
		return c.misuse("%w", err)
	}
	text := e.Text(func(action string) string { return c.painted(c.stdout, action, bold) })
	return errors.Join(c.result(e, "%s", text), c.out.Flush())
}
