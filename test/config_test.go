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

// TestNeitherBrokerNorApp: a sidecar starts, and stays, without both, beside the variables that Kubernetes makes for a
// Service called sidecar. A URL that leaves the pod is worth a warning.
func TestNeitherBrokerNorApp(t *testing.T) {
	t.Parallel()
	env := valid()
	env["SIDECAR_SERVICE_HOST"], env["SIDECAR_PORT_8080_TCP"] = "10.0.0.1", "tcp://10.0.0.1:8080"
	env["SIDECAR_APP_URL"] = "http://192.0.2.1:8080/"
	s := start(t, env)
	eventually(t, "a second try, and a warning", func() bool {
		return s.log.mentions(`"level":"WARN"`, "SIDECAR_APP_URL") && s.metric("sidecar_amqp_reconnects_total") > 1
	})
	if status, _ := s.get(s.admin, "/livez"); status != 200 {
		t.Errorf("GET /livez: %d", status)
	}
	if status, body := s.get(s.admin, "/readyz"); status != 503 || !strings.Contains(body, "{") {
		t.Errorf("GET /readyz: %d %s, want 503 and a JSON body", status, body)
	}
	s.stop()
}
