package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestQueriesAreMasked: a key in the query of a URL is shown neither by what is in effect nor by a problem, in the
// right place or not.
func TestQueriesAreMasked(t *testing.T) {
	t.Parallel()
	env := []string{
		"SIDECAR_APP_URL=http://127.0.0.1:8080/in?key=" + canary, "SIDECAR_APP_HEALTH_PATH=/up?key=" + canary, "OTEL_SDK_DISABLED=true",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector?key=" + canary, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://u:" + canary + "@collector",
	}
	c := load(t, env...)
	text := fmt.Sprint(c.Effective(), c.Warnings())
	for _, want := range []string{"http://127.0.0.1:8080/in?*** ", "/up?*** ", "http://collector?*** "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	for _, wrong := range []string{
		"SIDECAR_APP_URL=127.0.0.1:8080?key=" + canary, "SIDECAR_APP_URL=http://127.0.0.1/#" + canary, "SIDECAR_APP_URL=http://u:" + canary + "@h/",
		"SIDECAR_APP_HEALTH_PATH=up?key=" + canary, "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector?key=" + canary,
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=collector/?key=" + canary,
	} {
		_, err := Load([]string{"SIDECAR_SERVICE=a-b", wrong}, 0)
		if err == nil || !strings.Contains(err.Error(), masked) {
			t.Errorf("%s: %v", wrong, err)
		}
		text += fmt.Sprint(err)
	}
	if strings.Contains(text, canary) {
		t.Errorf("a key is shown: %s", text)
	}
}

// shows demands that these settings are among the effective ones of c, none of which is there twice.
func shows(t *testing.T, c *Config, all []Setting) {
	t.Helper()
	got := map[string]Setting{}
	for _, s := range c.Effective() {
		if _, twice := got[s.Name]; twice {
			t.Errorf("%s is there twice", s.Name)
		}
		got[s.Name] = s
	}
	for _, want := range all {
		if got[want.Name] != want {
			t.Errorf("got %+v, want %+v", got[want.Name], want)
		}
	}
}

func TestEffective(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "0123456789abcdef\n")
	c := load(
		t, "SIDECAR_AMQP_URL=amqps://me:"+canary+"@rabbit:5671/prod%2Fa, amqp://127.0.0.1", "SIDECAR_CONCURRENCY=8", "SIDECAR_APP_TIMEOUT=90s",
		"SIDECAR_CONTROL_TOKEN_FILE="+file, "SIDECAR_APP_TOKEN="+canary, "SIDECAR_MAX_RETRIES=3",
		"SIDECAR_MANAGEMENT_URL=https://me:"+canary+"%2Ca@rabbit:15671/x",
	)
	shows(t, c, []Setting{
		{Name: "SIDECAR_SERVICE", Value: "wms-cincout", Origin: "environment"},
		{Name: "SIDECAR_AMQP_URL", Value: "amqps://***@rabbit:5671/prod%2Fa,amqp://127.0.0.1", Origin: "environment"},
		{Name: "SIDECAR_AMQP_PASSWORD", Value: "", Origin: "default"},
		{Name: "SIDECAR_AMQP_HEARTBEAT", Value: "10s", Origin: "default"},
		{Name: "SIDECAR_MANAGEMENT_URL", Value: "https://***@rabbit:15671/x", Origin: "environment"},
		{Name: "SIDECAR_APP_TIMEOUT", Value: "90s", Origin: "environment"},
		{Name: "SIDECAR_APP_TOKEN", Value: "***", Origin: "environment"},
		{Name: "SIDECAR_CONTROL_TOKEN", Value: "***", Origin: "file:" + file},
		{Name: "SIDECAR_PREFETCH", Value: "16", Origin: "derived"},
		{Name: "SIDECAR_PREFIX", Value: "", Origin: "derived"},
		{Name: "SIDECAR_MAX_RETRIES", Value: "3", Origin: "environment"},
		{Name: "SIDECAR_RETRY_DELAY", Value: "", Origin: "preset"},
		{Name: "SIDECAR_QUEUE", Value: "", Origin: "preset"},
		{Name: "SIDECAR_OUTBOX_EXCHANGE", Value: "", Origin: "derived"},
		{Name: "SIDECAR_MESSAGE_TTL", Value: "", Origin: "default"},
		{Name: "OTEL_EXPORTER_OTLP_TIMEOUT", Value: "10000", Origin: "default"},
	})
	if all := c.Effective(); all[0].Name != "SIDECAR_SERVICE" {
		t.Errorf("starts with %+v", all[0])
	}
	if got := load(t).Effective()[3]; got.Value != "amqp://***@127.0.0.1:5672/" {
		t.Errorf("got %+v", got)
	}
	if got := redactURLs("amqp://u:" + canary + "%zz@h"); got != masked {
		t.Errorf("got %q for what is no URL", got)
	}
	if got := redactURL("https://u,v:p,w@h"); got != "https://***@h" {
		t.Errorf("got %q for a URL with commas", got)
	}
	if got := load(t, "SIDECAR_AMQP_URL=amqp://h").Effective()[3]; got.Value != "amqp://h" {
		t.Errorf("got %+v", got)
	}
}
