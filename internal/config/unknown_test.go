package config

import (
	"strings"
	"testing"
)

func TestUnknownNameSuggestsTheNearest(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"SIDECAR_AMQP_PASSWROD":       "SIDECAR_AMQP_PASSWORD",
		"SIDECAR_AMQP_PASWORD_FILE":   "SIDECAR_AMQP_PASSWORD_FILE",
		"SIDECAR_PREFETHC":            "SIDECAR_PREFETCH",
		"SIDECAR_RETRY_DELAYZ":        "SIDECAR_RETRY_DELAY",
		"SIDECAR_prefetch":            "SIDECAR_PREFETCH",
		"SIDECAR_TLS_CA_FILE":         "SIDECAR_AMQP_TLS_CA_FILE",
		"SIDECAR_RETRIES":             "SIDECAR_MAX_RETRIES",
		"SIDECAR_SERVICE_NAME":        "SIDECAR_SERVICE",
		"SIDECAR_SERVICE_FILE":        "SIDECAR_SERVICE",
		"SIDECAR_ADMIN_ADDRESS":       "SIDECAR_ADMIN_ADDR",
		"SIDECAR_ADMIN":               "SIDECAR_ADMIN_ADDR",
		"SIDECAR_USERNAME":            "SIDECAR_AMQP_USERNAME",
		"SIDECAR_DELAYS":              "SIDECAR_RETRY_DELAYS",
		"SIDECAR_FOO":                 "",
		"SIDECAR_SUPPORT_ME":          "",
		strings.Repeat("SIDECAR_", 9): "",
	} {
		line := refuse(t, name, name+"="+canary)
		if want = "unknown name; the nearest known name is " + want; strings.HasSuffix(want, " ") {
			want = "unknown name; docs/configuration.md lists the known names"
		}
		if !strings.HasSuffix(line, want) {
			t.Errorf("%s: %s", name, line)
		}
		// What was mistyped may be the name of a secret.
		if strings.Contains(line, canary) || !strings.Contains(line, "SIDECAR_") {
			t.Errorf("%s: %s", name, line)
		}
	}
}

func TestUnknownNameStaysOnOneLine(t *testing.T) {
	t.Parallel()
	_, err := Load([]string{"SIDECAR_SERVICE=a-b", "SIDECAR_X\nSIDECAR_Y=1", "SIDECAR_" + strings.Repeat("Z", 5000) + "=1"}, 0)
	if err == nil || strings.Count(err.Error(), "\n") != 1 || len(err.Error()) > 500 || strings.Contains(err.Error(), "nearest") {
		t.Errorf("got %v", err)
	}
}

// TestServiceLinks holds what Kubernetes puts into every container of a namespace with Services "sidecar" and
// "sidecar-web".
func TestServiceLinks(t *testing.T) {
	t.Parallel()
	c := load(
		t, "SIDECAR_SERVICE_HOST=10.0.0.1", "SIDECAR_SERVICE_PORT=80", "SIDECAR_SERVICE_PORT_HTTP=80", "SIDECAR_PORT=tcp://10.0.0.1:80",
		"SIDECAR_PORT_80_TCP=tcp://10.0.0.1:80", "SIDECAR_PORT_80_TCP_PROTO=tcp", "SIDECAR_PORT_80_TCP_PORT=80", "SIDECAR_PORT_80_TCP_ADDR=10.0.0.1",
		"SIDECAR_WEB_SERVICE_HOST=fd00::1", "SIDECAR_WEB_SERVICE_PORT=53", "SIDECAR_WEB_PORT=udp://[fd00::1]:53", "SIDECAR_WEB_PORT_53_UDP_PROTO=udp",
		"RABBITMQ_PORT=tcp://10.0.0.2:5672", "APP_PORT=tcp://10.0.0.3:80",
	)
	if w := c.Warnings(); len(w) != 0 {
		t.Errorf("warnings: %q", w)
	}
	c = load(t, "SIDECAR_ADMIN_PORT="+canary, "SIDECAR_SERVICE_PORT=x", "SIDECAR_PORT_80_TCP_PROTO=x", "SIDECAR_SERVICE_HOST=a b")
	if w := strings.Join(c.Warnings(), "\n"); strings.Count(w, "\n") != 3 || strings.Contains(w, canary) || !strings.Contains(w, "SIDECAR_ADMIN_ADDR") {
		t.Errorf("warnings:\n%s", w)
	}
	refuse(t, "SIDECAR_SERVICE_HOSTNAME", "SIDECAR_SERVICE_HOSTNAME=x")
	refuse(t, "SIDECAR_REPORT", "SIDECAR_REPORT=x")
}
