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
	"sidecar/internal/config"
)

func check(c *call) execution {
	roundtrip := c.flags.Bool("roundtrip", false, "send a message through queues beside the service's, which are "+
		"removed again, to an app of this command's own")
	c.takesJSON()
	return func(ctx context.Context) error {
		cfg, err := c.load()
		if err != nil {
			return err
		}
		all := cfg.Subscribed()
		if len(cfg.Subscriptions) == 0 || len(all) == 0 {
			all = []*config.Config{cfg}
		} else if _, warnings, err := app.PresetValues(cfg); err == nil {
			c.warn(warnings)
		}
		var missing error // counts only if there is nothing worse
		for _, of := range all {
			if *roundtrip {
				w := c.stdout
				if c.json {
					w = c.stderr
				}
				err = errors.Join(err, app.RoundTrip(ctx, of, app.Build{Version: version, Commit: commit}, w))
			}
			found := app.Check(ctx, of, c.out, c.json, func(word string) string {
				return c.painted(c.stdout, word, map[string]string{"problem": red, "warning": yellow, "ok": green}[word])
			})
			if errors.Is(found, app.ErrMissing) {
				missing, found = found, nil
			}
			err = errors.Join(err, found, c.out.Flush()) // the next round trip is written past c.out
		}
		return cmp.Or(err, missing)
	}
}

func (c *call) warn(warnings []string) {
	for _, warning := range warnings {
		_, _ = fmt.Fprintf(c.stderr, "warning: %s\n", warning)
	}
}

func printConfig(c *call) execution {
	changed := c.flags.Bool("changed", false, "only what differs from the default")
	c.takesJSON()
	return func(context.Context) error { return c.printSettings(*changed) }
}

// printSettings prints once what holds for all subscriptions alike. The JSON of a subscription has everything that can
// be set for it.
func (c *call) printSettings(changed bool) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	all, warnings, err := settings(cfg, changed)
	if err != nil {
		return err
	}
	var of []namedSettings
	for _, s := range cfg.Subscriptions {
		own, warned, err := settings(s, changed)
		if err != nil {
			return err
		}
		of = append(of, namedSettings{s.Subscription, own})
		for _, w := range warned {
			warnings = append(warnings, s.Subscription+": "+w)
		}
	}
	differ := func(s config.Setting) bool {
		return slices.ContainsFunc(of, func(n namedSettings) bool { return !slices.Contains(n.Variables, s) })
	}
	if len(of) > 0 {
		all = slices.DeleteFunc(slices.Clone(of[0].Variables), differ)
	}
	if c.json {
		for i := range of {
			of[i].Variables = slices.DeleteFunc(of[i].Variables, func(s config.Setting) bool { return !s.Own })
		}
		return errors.Join(c.document(struct {
			Service       string           `json:"service"`
			Variables     []config.Setting `json:"variables"`
			Subscriptions []namedSettings  `json:"subscriptions,omitempty"`
			Warnings      []string         `json:"warnings"`
		}{cfg.Service.Name, all, of, append([]string{}, warnings...)}), c.out.Flush())
	}
	c.warn(warnings)
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	for _, s := range all {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Value, s.Origin)
	}
	for _, n := range of {
		_, _ = fmt.Fprintf(w, "\nsubscription %s\n", n.Name)
		for _, s := range slices.DeleteFunc(n.Variables, func(s config.Setting) bool { return slices.Contains(all, s) }) {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Value, cmp.Or(s.Variable, s.Origin))
		}
	}
	return w.Flush()
}

type namedSettings struct {
	Name      string           `json:"name"`
	Variables []config.Setting `json:"variables"`
}

// settings are the variables of a configuration, with what the topology makes of those that are not set; or only those
// that differ from the default.
func settings(cfg *config.Config, changed bool) ([]config.Setting, []string, error) {
	preset, warnings, err := app.PresetValues(cfg)
	all := cfg.Effective()
	for i, s := range all {
		all[i].Value = cmp.Or(s.Value, preset[s.Name])
	}
	return slices.DeleteFunc(all, func(s config.Setting) bool { return changed && !s.Changed }), warnings, err
}

// chosen returns the configuration of the subscription that --subscription names; without it cfg, of all of them.
func (c *call) chosen(cfg *config.Config) (*config.Config, error) {
	i := slices.IndexFunc(cfg.Subscriptions, func(s *config.Config) bool { return s.Subscription == c.subscription })
	switch {
	case c.subscription == "":
		return cfg, nil
	case i < 0:
		return nil, c.noSubscription(cfg.Service.Subscriptions)
	}
	return cfg.Subscriptions[i], nil
}

func plan(c *call) execution {
	format := "text"
	c.choice(&format, "format", "`FORMAT` of the output: text (the default), mermaid, definitions (a definitions.json "+
		"for rabbitmqctl import_definitions), permissions (the least a broker user needs) or json (a file for "+
		"SIDECAR_PLAN_FILE)", app.PlanFormats)
	c.flags.BoolVar(&c.json, "json", false, "the same as --format json")
	c.takesSubscription("only the topology")
	return func(_ context.Context) error {
		cfg, err := c.load()
		if err != nil {
			return err
		}
		if c.json {
			format = "json"
		}
		if cfg, err = c.chosen(cfg); err != nil {
			return err
		}
		out, err := app.RenderPlan(cfg, format)
		if err != nil {
			return err
		}
		_, err = io.WriteString(c.stdout, out)
		return err
	}
}

// explain needs no service to say what an answer means: without one it explains for an imaginary service.
func explain(c *call) execution {
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
	c.flags.StringVar(&q.RoutingKey, "routing-key", "", "routing `KEY` of the message, for SIDECAR_ROUTES")
	c.flags.StringVar(&q.Type, "type", "", "`TYPE` of the message, for SIDECAR_ROUTES")
	c.flags.StringVar(&q.Exchange, "exchange", "", "`NAME` of the exchange of the first publish, for SIDECAR_ROUTES")
	c.flags.Func("header", "header `NAME=VALUE` of the message, for SIDECAR_ROUTES; may be repeated", q.SetHeader)
	c.takesSubscription("a message")
	return func(_ context.Context) error {
		switch {
		case q.Status == 0 && q.Failure == "" && q.AsksForPath():
			q.Status = 200
		case (q.Status == 0) == (q.Failure == ""):
			return c.misuse("give either --status or --failure, or what a message has for its route: --routing-key, --type, " +
				"--exchange or --header")
		case q.Status > 999:
			return c.misuse("--status %d is not between 0 and 999", q.Status)
		}
		// Of two equal names the first one counts.
		cfg, err := loadConfig(append(slices.Clone(c.environ), "SIDECAR_SERVICE=example-service"))
		if err != nil {
			return err
		}
		if cfg, err = c.chosen(cfg); err != nil {
			return err
		}
		if len(cfg.Subscriptions) > 1 {
			return c.misuse("choose a subscription, one of %s, with --subscription",
				strings.Join(cfg.Service.Subscriptions, ", "))
		}
		e, err := app.Explain(cfg, q)
		if err != nil {
			return c.misuse("%w", err)
		}
		text := e.Text(func(action string) string { return c.painted(c.stdout, action, bold) })
		return errors.Join(c.result(e, "%s", text), c.out.Flush())
	}
}
