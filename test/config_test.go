package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// valid is an environment that is right but leads nowhere: what is tested here ends before anything is dialed.
func valid() map[string]string {
	return map[string]string{
		"SIDECAR_SERVICE": "shop-orders", "SIDECAR_AMQP_URL": "amqp://guest:guest@127.0.0.1:1/", "SIDECAR_ADMIN_ADDR": "127.0.0.1:0", "SIDECAR_CONTROL_ADDR": "127.0.0.1:0",
	}
}

// TestBadConfiguration: whatever starts with a wrong configuration ends with 64 and a line for each mistake, without a
// secret.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	must.Do(t, os.WriteFile(file, []byte("canary-content\n"), 0o600))
	env := map[string]string{
		"SIDECAR_SERVICE": "Wms Cincout", "SIDECAR_AMQP_URL": "http://u:canary-secret@127.0.0.1/", "SIDECAR_RETRY_DELAY": "7",
		"SIDECAR_APP_TOKEN": "canary-app-token", "SIDECAR_APP_TOKEN_FILE": file, "SIDECAR_AMQP_PASSWORD_FILE": "/dev/zero",
		"SIDECAR_CONCURRENCY": "100", "SIDECAR_PREFETCH": "50", "SIDECAR_CONTROL_ADDR": "0.0.0.0:0", "SIDECAR_CONCURENCY": "1",
		"SIDECAR_TOPOLOGY": "per-queue", "SIDECAR_TYPO": "canary-typo",
	}
	for _, args := range [][]string{{"run"}, {"config"}, {"check"}, {"plan"}, {"dlq", "list"}, {"outbox", "status"}} {
		r := command(t, env, args...)
		if r.code != 64 || strings.Contains(r.all(), "canary") {
			t.Errorf("%q: exit %d, or a secret is shown:\n%s", args, r.code, r.all())
		}
		for name := range env {
			if !strings.Contains(r.all(), name) {
				t.Errorf("%q does not name %s:\n%s", args, name, r.all())
			}
		}
	}
}
