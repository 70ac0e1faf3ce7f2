package test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// valid is an environment that is right but leads nowhere: what is tested here ends before anything is dialed.
func valid() map[string]string {
	return map[string]string{
		"SIDECAR_SERVICE": "shop-orders", "SIDECAR_AMQP_URL": "amqp://guest:guest@127.0.0.1:1/", "SIDECAR_ADMIN_ADDR": "127.0.0.1:0", "SIDECAR_CONTROL_ADDR": "127.0.0.1:0",
	}
}

// refused runs the sidecar with the change and wants exit 64 with every name in the text.
func refused(t *testing.T, change map[string]string, names ...string) result {
	t.Helper()
	env := valid()
	maps.Copy(env, change)
	r := runBriefly(t, env)
	if r.code != 64 {
		t.Errorf("%v: exit %d, want 64\n%s", change, r.code, r.all())
		return r
	}
	for _, n := range names {
		if !strings.Contains(r.all(), n) {
			t.Errorf("%v: the text does not name %s:\n%s", change, n, r.all())
		}
	}
	return r
}

// runBriefly runs `sidecar run`; a sidecar that accepts its configuration does not end by itself, so it is asked to
// stop.
func runBriefly(t *testing.T, env map[string]string) result {
	t.Helper()
	s := launch(t, env, "run")
	listening := func() bool { return len(s.log.find(func(e entry) bool { return e.is("listening") })) > 0 }
	eventually(t, "the sidecar refuses or listens", func() bool { return s.ended() || listening() })
	if !s.ended() {
		s.signal(syscall.SIGTERM)
		s.exitCode()
		return result{stdout: s.log.String(), code: -1}
	}
	return result{stdout: s.log.String(), code: s.exitCode()}
}

func TestBadValues(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("s", 300)
	rows := []struct{ name, value string }{
		{"SERVICE", ""}, {"SERVICE", "Wms Cincout"}, {"SERVICE", "../../x"}, {"SERVICE", long}, {"SERVICE", "-lead"}, {"SERVICE", "amq.foo"},
		{"SERVICE", "amq.foo-x"}, {"SERVICE", "a\nb"}, {"SERVICE", "größe"}, {"SERVICE", strings.Repeat("s", 250)},
		{"AMQP_URL", "http://u:canary-secret@127.0.0.1/"}, {"AMQP_URL", "amqp://u:%zz@127.0.0.1/"}, {"AMQP_URL", "amqp://u:p@127.0.0.1:0/"},
		{"AMQP_URL", "amqp://u:p@127.0.0.1:70000/"}, {"AMQP_URL", "127.0.0.1:5672"}, {"AMQP_URL", "amqp://127.0.0.1/,"}, {"AMQP_URL", "amqp:///"},
		{"AMQP_SASL", "gssapi"}, {"AMQP_HEARTBEAT", "0"}, {"AMQP_HEARTBEAT", "0s"}, {"AMQP_HEARTBEAT", "10"}, {"AMQP_HEARTBEAT", "-1s"},
		{"APP_URL", "file:///etc/passwd"}, {"APP_URL", "http://user:pw@127.0.0.1/"}, {"APP_URL", "http://127.0.0.1/#frag"}, {"APP_URL", "http://169.254.169.254/"},
		{"APP_URL", "http://127.0.0.1:70000/"}, {"APP_URL", "127.0.0.1:8080"}, {"APP_URL", "unix://"}, {"APP_URL", "http://127.0.0.1/a\r\nb"}, {"APP_URL", "ftp://127.0.0.1/"},
		{"APP_TIMEOUT", "0"}, {"APP_TIMEOUT", "0s"}, {"APP_TIMEOUT", "-5s"}, {"APP_TIMEOUT", "5"}, {"APP_TIMEOUT", "1000h"}, {"APP_TIMEOUT", "soon"},
		{"APP_HEALTH_INTERVAL", "0s"}, {"APP_HEALTH_TIMEOUT", "-1s"}, {"APP_HEALTH_PATH", "healthz\r\nX: 1"},
		{"CONCURRENCY", "0"}, {"CONCURRENCY", "-1"}, {"CONCURRENCY", "10001"}, {"CONCURRENCY", "ten"}, {"CONCURRENCY", "1.5"},
		{"PREFETCH", "0"}, {"PREFETCH", "-1"}, {"PREFETCH", "65536"}, {"PREFETCH", "ten"}, {"PREFETCH", "1e3"}, {"PREFETCH", "5"},
		{"TOPOLOGY", "ring"}, {"TOPOLOGY_MODE", "force"}, {"QUEUE_TYPE", "stream"}, {"DEAD_LETTER", "maybe"},
		{"CONCURENCY", "CONCURRENCY"}, // the line of an unknown name shows the nearest known name
		{"MAX_RETRIES", "-1"}, {"MAX_RETRIES", "1e9"}, {"MAX_RETRIES", "x"}, {"MAX_RETRIES", "99999999999999999999"},
		{"RETRY_DELAY", "0"}, {"RETRY_DELAY", "0s"}, {"RETRY_DELAY", "5"}, {"RETRY_DELAY", "-1s"}, {"RETRY_DELAY", "4294967296ms"},
		{"RETRY_DELAYS", "5s,2s"}, {"RETRY_DELAYS", "5s,,10s"}, {"RETRY_DELAYS", "5s,x"}, {"RETRY_DELAYS", "5s,5s"}, {"MESSAGE_TTL", "-1s"}, {"CRASH_LIMIT", "-1"},
		{"PARK_ON_STATUS", "200"}, {"PARK_ON_STATUS", "abc"}, {"PARK_ON_STATUS", "99"}, {"PARK_ON_STATUS", "600"}, {"PARK_ON_STATUS", "400,,422"},
		{"APP_DOWN", "panic"}, {"REQUEUE_DELAY_MIN", "-1s"}, {"REQUEUE_DELAY_MIN", "1"}, {"RETRY_AFTER_MAX", "x"}, {"MAX_BODY", "-1"}, {"MAX_BODY", "16MB!"}, {"MAX_BODY", "0"},
		{"FORWARD_HEADERS", "a,,b"}, {"PASSTHROUGH_HEADERS", "host"}, {"PASSTHROUGH_HEADERS", "Content-Length"}, {"PASSTHROUGH_HEADERS", "transfer-encoding"},
		{"PASSTHROUGH_HEADERS", "authorization"}, {"CLOUDEVENTS", "yes"}, {"ADMIN_ADDR", "nowhere"}, {"ADMIN_ADDR", "127.0.0.1:99999"},
		{"CONTROL_ADDR", "0.0.0.0:0"}, {"CONTROL_ADDR", ":9091"}, {"CONTROL_ADDR", "[::]:9091"}, {"CONTROL_READ_TOKEN", "0123456789abcdef"},
		{"SHUTDOWN_GRACE", "-1s"}, {"SHUTDOWN_GRACE", "25"}, {"LOG_LEVEL", "loud"}, {"LOG_FORMAT", "xml"},
		{"PREFIX", "amq."}, {"QUEUE", long}, {"DLQ", "amq.dlq"}, {"EXCHANGE_TYPE", "ring"}, {"BINDINGS", "no-colon"},
	}
	// All problems are reported at once, so one process takes a value of each variable.
	nth, rounds := map[string]int{}, []map[string]string{}
	for _, r := range rows {
		if nth[r.name] == len(rounds) {
			rounds = append(rounds, map[string]string{})
		}
		rounds[nth[r.name]]["SIDECAR_"+r.name] = r.value
		nth[r.name]++
	}
	for _, change := range rounds {
		text := refused(t, change).all()
		for name, value := range change {
			line := regexp.MustCompile(`(?m)^` + name + `\W.*$`).FindString(text)
			shown := strings.TrimSpace(value)
			hidden := shown == "" || len(shown) >= 60 || strings.Contains(name, "URL") || strings.Contains(name, "TOKEN") ||
				strings.ContainsFunc(shown, func(c rune) bool { return c < ' ' || c > '~' })
			if line == "" || !hidden && !strings.Contains(line, shown) {
				t.Errorf("%s=%q: the line is %q in:\n%s", name, value, line, text)
			}
		}
		if strings.Contains(text, "canary") {
			t.Errorf("a secret was printed:\n%s", text)
		}
	}
	refused(t, map[string]string{"SIDECAR_TOPOLOGY": "dead-letter"}, "TOPOLOGY")
	refused(t, map[string]string{"SIDECAR_TOPOLOGY": "per-queue"}, "TOPOLOGY")
}

func TestCrossChecks(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("canary-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, map[string]string{"SIDECAR_REQUEUE_DELAY_MIN": "5s", "SIDECAR_REQUEUE_DELAY_MAX": "1s"}, "SIDECAR_REQUEUE_DELAY_M")
	refused(t, map[string]string{"SIDECAR_CONCURRENCY": "100", "SIDECAR_PREFETCH": "50"}, "SIDECAR_PREFETCH")
	refused(t, map[string]string{"SIDECAR_ADMIN_ADDR": "127.0.0.1:21499", "SIDECAR_CONTROL_ADDR": "127.0.0.1:21499"}, "SIDECAR_CONTROL_ADDR")
	refused(t, map[string]string{"SIDECAR_CONTROL_ADDR": "0.0.0.0:0", "SIDECAR_CONTROL_TOKEN": "short"}, "SIDECAR_CONTROL_TOKEN")
	same := refused(t, map[string]string{"SIDECAR_CONTROL_TOKEN": "canary-0123456789", "SIDECAR_CONTROL_READ_TOKEN": "canary-0123456789"}, "SIDECAR_CONTROL_READ_TOKEN")
	if strings.Contains(same.all(), "canary") {
		t.Errorf("a secret was printed:\n%s", same.all())
	}
	both, names := map[string]string{}, []string{}
	for _, n := range []string{"AMQP_URL", "AMQP_PASSWORD", "APP_TOKEN", "CONTROL_TOKEN", "CONTROL_READ_TOKEN", "MANAGEMENT_URL"} {
		both["SIDECAR_"+n], both["SIDECAR_"+n+"_FILE"] = "amqp://u:canary-env-secret@h/", file
		names = append(names, "SIDECAR_"+n+"_FILE")
	}
	if r := refused(t, both, names...); strings.Contains(r.all(), "canary") {
		t.Errorf("a secret was printed:\n%s", r.all())
	}
	refused(t, map[string]string{"SIDECAR_AMQP_URL": "amqps://h/", "SIDECAR_AMQP_TLS_CA_FILE": file}, "SIDECAR_AMQP_TLS_CA_FILE")
	refused(t, map[string]string{"SIDECAR_AMQP_URL": "amqps://h/", "SIDECAR_AMQP_TLS_CERT_FILE": file}, "SIDECAR_AMQP_TLS_")
}

// TestSecretFiles: missing, not a file, too large, endless; and never their content.
func TestSecretFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	big, fifo := filepath.Join(dir, "big"), filepath.Join(dir, "fifo")
	if err := os.WriteFile(big, []byte(strings.Repeat("canary-content ", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "missing"), dir, fifo, "/dev/zero", big} {
		r := refused(t, map[string]string{"SIDECAR_AMQP_PASSWORD_FILE": path}, "SIDECAR_AMQP_PASSWORD_FILE")
		if strings.Contains(r.all(), "canary-content") {
			t.Errorf("%s: the content was printed", path)
		}
	}
	bad := filepath.Join(dir, "url")
	if err := os.WriteFile(bad, []byte("http://u:canary-content@h/\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := valid()
	delete(env, "SIDECAR_AMQP_URL")
	env["SIDECAR_AMQP_URL_FILE"] = bad
	if r := runBriefly(t, env); strings.Contains(r.all(), "canary-content") {
		t.Errorf("the content of a secret file was printed:\n%s", r.all())
	}
	// Kubernetes mounts secrets as links to links.
	if err := os.Mkdir(filepath.Join(dir, "..data"), 0o700); err != nil {
		t.Fatal(err)
	}
	_ = os.WriteFile(filepath.Join(dir, "..data", "pw"), []byte("x\n"), 0o600)
	if err := os.Symlink("..data/pw", filepath.Join(dir, "pw")); err != nil {
		t.Fatal(err)
	}
	env = valid()
	env["SIDECAR_AMQP_PASSWORD_FILE"] = filepath.Join(dir, "pw")
	if r := runBriefly(t, env); r.code != -1 {
		t.Errorf("a linked secret file was refused:\n%s", r.all())
	}
}

// TestUnknownNames get a similar known name; what Kubernetes injects for a Service called sidecar is not ours.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	wrong, named := map[string]string{}, []string{}
	for name, right := range map[string]string{
		"SIDECAR_CONCURENCY": "SIDECAR_CONCURRENCY", "SIDECAR_AMQP_URI": "SIDECAR_AMQP_URL", "SIDECAR_APP_TIMOUT": "SIDECAR_APP_TIMEOUT",
		"SIDECAR_MAX_RETRY": "SIDECAR_MAX_RETRIES", "SIDECAR_PREFETCH_FILE": "SIDECAR_PREFETCH", "SIDECAR_LOGLEVEL": "SIDECAR_LOG_LEVEL",
	} {
		wrong[name], named = "1", append(named, name, right)
	}
	refused(t, wrong, named...)
	env := valid()
	for _, n := range []string{
		"SIDECAR_SERVICE_HOST", "SIDECAR_SERVICE_PORT", "SIDECAR_SERVICE_PORT_HTTP", "SIDECAR_PORT", "SIDECAR_PORT_8080_TCP", "SIDECAR_PORT_8080_TCP_ADDR",
		"SIDECAR_PORT_8080_TCP_PORT", "SIDECAR_PORT_8080_TCP_PROTO", "RABBITMQ_PORT", "APP_PORT", "AMQP_URL", "PREFETCH",
	} {
		env[n] = "tcp://10.0.0.1:8080"
	}
	if r := runBriefly(t, env); r.code != -1 {
		t.Errorf("exit %d with the variables of Kubernetes service links:\n%s", r.code, r.all())
	}
}

// TestWarnings: allowed, but worth a warning.
func TestWarnings(t *testing.T) {
	t.Parallel()
	warned := func(change map[string]string, word string) {
		t.Helper()
		env := valid()
		maps.Copy(env, change)
		s := start(t, env)
		eventually(t, "a warning about "+word, func() bool {
			return len(s.log.find(func(e entry) bool {
				return strings.EqualFold(e.text("level"), "warn") && strings.Contains(strings.ToLower(fmt.Sprint(e)), strings.ToLower(word))
			})) > 0
		})
	}
	warned(map[string]string{"SIDECAR_APP_URL": "http://192.0.2.1:8080/"}, "SIDECAR_APP_URL")
	warned(map[string]string{"SIDECAR_SERVICE": "noprefix"}, "no hyphen")
}

// TestNeitherBrokerNorApp: a sidecar starts, and stays, without both.
func TestNeitherBrokerNorApp(t *testing.T) {
	t.Parallel()
	s := start(t, valid())
	stays(t, 2*time.Second, "up", func() bool { return !s.ended() })
	if status, _ := s.get(s.admin, "/livez"); status != 200 {
		t.Errorf("GET /livez: %d", status)
	}
	if status, body := s.get(s.admin, "/readyz"); status != 503 || !strings.Contains(body, "{") {
		t.Errorf("GET /readyz: %d %s, want 503 and a JSON body", status, body)
	}
	s.stop()
}
