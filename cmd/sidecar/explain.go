package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"sidecar/internal/app"
)

// explain needs no service to say what an answer means: without one it explains for an imaginary service.
func explain(_ context.Context, in invocation) error {
	flags := flag.NewFlagSet("explain", flag.ContinueOnError)
	q := app.Question{}
	flags.IntVar(&q.Status, "status", 0, "HTTP status of the answer")
	flags.StringVar(&q.Failure, "failure", "", "instead of a status: refused, timeout, reset, malformed or too_large")
	flags.IntVar(&q.RetryCount, "retry", 0, "retries the message has behind it (Amqp-Retry-Count)")
	flags.StringVar(&q.Disposition, "disposition", "", "Amqp-Disposition of the answer")
	flags.StringVar(&q.Body, "body", "", "body of the answer, for SIDECAR_RESPONSE_DIALECT")
	flags.DurationVar(&q.RetryAfter, "retry-after", -1*time.Second, "Retry-After of the answer")
	if err := in.parse(flags, 0); err != nil {
		return err
	}
	if (q.Status == 0) == (q.Failure == "") {
		return fmt.Errorf("%w: explain: give either --status or --failure", errUsage)
	}
	if q.Status < 0 || q.Status > 999 {
		return fmt.Errorf("%w: explain: --status %d is not between 0 and 999", errUsage, q.Status)
	}
	if q.RetryCount < 0 {
		return fmt.Errorf("%w: explain: --retry %d is negative", errUsage, q.RetryCount)
	}
	environ := in.environ
	if !slices.ContainsFunc(environ, func(kv string) bool { return strings.HasPrefix(kv, "SIDECAR_SERVICE=") }) {
		environ = append(slices.Clone(environ), "SIDECAR_SERVICE=example-service")
	}
	cfg, err := loadConfig(environ)
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
