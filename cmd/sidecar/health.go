package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const healthTimeout = 3 * time.Second

var healthPaths = map[string]string{"live": "/livez", "ready": "/readyz", "startup": "/startupz"}

// health is the exec probe for images without a shell.
func health(ctx context.Context, in invocation) error {
	flags := flag.NewFlagSet("health", flag.ContinueOnError)
	if err := in.parse(flags, 1); err != nil {
		return err
	}
	probe := flags.Arg(0)
	if probe == "" {
		probe = "ready"
	}
	path, ok := healthPaths[probe]
	if !ok {
		return fmt.Errorf("%w: health: %q is not one of live, ready, startup", errUsage, probe)
	}
	cfg, err := loadConfig(in.environ)
	if err != nil {
		return err
	}
	l, err := newLocal("SIDECAR_ADMIN_ADDR", cfg.Listen.AdminAddr, "", healthTimeout)
	if err != nil {
		return err
	}
	status, body, err := l.ask(ctx, http.MethodGet, path)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(in.stdout, strings.TrimSpace(string(body)))
	if status != http.StatusOK {
		return fmt.Errorf("not %s: status %d", probe, status)
	}
	return nil
}
