package test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// surfaces gathers everything that leaves a sidecar and is not meant for the broker or the app, by name.
type surfaces map[string]string

func (x surfaces) add(name, text string) { x[name] += text + "\n" }

// clean reports every surface that holds one of the canaries.
func (x surfaces) clean(t *testing.T, canaries ...string) {
	t.Helper()
	for name, text := range x {
		if strings.TrimSpace(text) == "" {
			t.Errorf("%s: nothing was gathered", name)
		}
		for _, c := range canaries {
			if i := strings.Index(text, c); i >= 0 {
				t.Errorf("%s holds %s: …%q", name, c, text[max(0, i-80):min(len(text), i+80)])
			}
		}
	}
}

// Canaries: the secrets of the sidecar, and what belongs to messages and answers alone.
var (
	secretCanaries = []string{
		"canary-amqp-password", "canary-url-password", "canary-app-token", "canary-control-token", "canary-control-read-token",
		"canary-otlp-token", "canary-wrong-password", "canary-query",
	}
	payloadCanaries = []string{"canary-body", "canary-header-value", "canary-answer-body", "canary-answer-header"}
)

// TestSecretsNeverShow runs a sidecar in which every secret is in use, lets messages succeed, fail and park, asks
// everything it answers, runs every subcommand, and searches for the secrets and the payloads in all of it, in the end in
// the stacks of a process that is asked to dump them. The app's answer is in x-final-answer of the parked message and
// nowhere else.
func TestSecretsNeverShow(t *testing.T) {
	t.Parallel()
	sink, otlp := newSpanSink(t)
	sc := newScene(t).seed().with("PARK_ANSWER", "1KiB")
	withSecrets(t, sc, otlp)
	sc.app.otherwise(func(d *delivery) answer {
		if d.ID == "bad" {
			return answer{status: 500, body: "canary-answer-body", header: map[string]string{"X-Answer": "canary-answer-header"}}
		}
		return status(200)
	})
	for _, id := range []string{"good", "bad"} {
		m := message(id)
		m.Body, m.Headers = []byte("canary-body"), amqp.Table{"x-secret": "canary-header-value"}
		sc.sendMessage(m)
	}
	s := sc.run()
	s.awaitOutcome("good", "ack")
	s.awaitOutcome("bad", "park")
	if got := sc.app.Seen("good")[0].Header.Get("Authorization"); got != "Bearer canary-app-token" {
		t.Errorf("the app got %q", got)
	}
	eventually(t, "spans with their token", func() bool { auth, _ := sink.seen(); return auth == "canary-otlp-token" })

	out := surfaces{}
	ask(s, out)
	subcommands(t, sc, s, out)
	if cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.cmd.Process.Pid)); err == nil {
		out.add("argv", string(cmdline))
	}
	_, spans := sink.seen()
	out.add("spans", spans)
	out.add("client properties", fmt.Sprint(brokertest.Rows(t, "connections", "user", "client_properties")))
	s.signal(syscall.SIGQUIT) // no drain: the runtime writes all stacks and ends the process
	s.exitCode()
	if !s.log.mentions("SIGQUIT") {
		t.Error("no stacks were written")
	}
	out.add("log", s.log.String())
	out.clean(t, append(secretCanaries, payloadCanaries...)...)

	// The parked message is the message: its own payload stays, and of the answer only that one header is added.
	parked := sc.take(sc.dlq(), 1)[0]
	if string(parked.Body) != "canary-body" {
		t.Errorf("parked body %q", parked.Body)
	}
	if got := parked.Headers["x-final-answer"]; got != "canary-answer-body" {
		t.Errorf("x-final-answer is %v", got)
	}
	delete(parked.Headers, "x-final-answer")
	surfaces{"parked headers": fmt.Sprint(parked.Headers)}.clean(t, append(secretCanaries, "canary-body", "canary-answer-body", "canary-answer-header")...)
}

// withSecrets gives the scene a broker user of its own and every secret there is, one of them from a file.
func withSecrets(t *testing.T, sc *scene, otlp string) {
	t.Helper()
	user := brokertest.User(t, "canary-amqp-password")
	file := filepath.Join(t.TempDir(), "password")
	must.Do(t, os.WriteFile(file, []byte("canary-amqp-password\n"), 0o600))
	sc.with(
		"AMQP_URL", brokerURLWith(t, func(u *url.URL) { u.User = url.UserPassword("absent", "canary-url-password") }),
		"AMQP_USERNAME", user, "AMQP_PASSWORD_FILE", file,
		"APP_URL", sc.app.url()+"?key=canary-query", "APP_TOKEN", "canary-app-token", "CONTROL_TOKEN", "canary-control-token",
		"CONTROL_READ_TOKEN", "canary-control-read-token", "MAX_RETRIES", "1",
	)
	sc.env["OTEL_EXPORTER_OTLP_ENDPOINT"], sc.env["OTEL_BSP_SCHEDULE_DELAY"] = otlp, "100"
	sc.env["OTEL_EXPORTER_OTLP_HEADERS"] = "authorization=canary-otlp-token"
}

// ask gathers what both listeners answer, to those who may ask and to those who may not.
func ask(s *sidecar, out surfaces) {
	for _, path := range []string{"/livez", "/readyz", "/startupz", "/metrics", "/drained", "/nowhere"} {
		_, body := s.get(s.admin, path)
		out.add("admin "+path, body)
	}
	for _, auth := range []string{"", "Bearer canary-control-token", "Bearer canary-control-read-token", "Bearer canary-control-tokenx"} {
		for _, path := range []string{"/status", "/nowhere", "/pause"} {
			_, header, body := s.do(http.MethodGet, s.control, path, func(r *http.Request) { r.Header.Set("Authorization", auth) })
			out.add("control "+path, body+fmt.Sprint(header))
		}
	}
}

// subcommands gathers what every one of them prints beside a running sidecar, with a wrong password too.
func subcommands(t *testing.T, sc *scene, s *sidecar, out surfaces) {
	t.Helper()
	env := sc.running(s)
	for _, args := range [][]string{
		{"version"}, {"config"}, {"plan"}, {"plan", "--format", "mermaid"}, {"plan", "--format", "definitions"}, {"plan", "--format", "permissions"},
		{"explain", "--status", "503"}, {"health"}, {"check"}, {"drain"},
	} {
		r := command(t, env, args...)
		if r.code != 0 {
			t.Errorf("%v: exit %d: %s", args, r.code, r.all())
		}
		out.add("sidecar "+strings.Join(args, " "), r.all())
	}
	delete(env, "SIDECAR_AMQP_PASSWORD_FILE")
	env["SIDECAR_AMQP_PASSWORD"] = "canary-wrong-password"
	r := command(t, env, "check")
	if r.code != 1 {
		t.Errorf("check with a wrong password: exit %d", r.code)
	}
	out.add("check, refused", r.all())
}

// TestTokenFilesThatAreGone: the token of a listener is refused while its file is missing, and what is written
// there later counts at once. The app gets its own as it was last read.
func TestTokenFilesThatAreGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	put := func(name, text string) { must.Do(t, os.WriteFile(file(name), []byte(text), 0o600)) }
	for _, name := range []string{"control", "read", "publish", "app"} {
		put(name, name+"-0123456789abcdef\n")
	}
	sc := newScene(t).seed().with(
		"CONTROL_TOKEN_FILE", file("control"), "CONTROL_READ_TOKEN_FILE", file("read"), "PUBLISH_TOKEN_FILE", file("publish"),
		"PUBLISH_ADDR", "127.0.0.1:0", "APP_TOKEN_FILE", file("app"),
	)
	s := sc.run()
	check := func(name, token string, refused bool) {
		t.Helper()
		method, addr, path := http.MethodGet, s.control, "/status"
		if name == "publish" {
			method, addr, path = http.MethodPost, s.endpoint, "/publish/default/k"
		}
		code, _ := s.request(method, addr, path, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) })
		if (code == http.StatusUnauthorized) != refused || code == 0 {
			t.Errorf("%s with the token %s: %d", name, token, code)
		}
	}
	for _, name := range []string{"control", "read", "publish"} {
		token := name + "-0123456789abcdef"
		check(name, token, false)
		must.Do(t, os.Remove(file(name)))
		check(name, token, true)
		put(name, "another-"+token)
		check(name, token, true)
		check(name, "another-"+token, false)
	}
	must.Do(t, os.Remove(file("app")))
	sc.send("m")
	if got := sc.app.await("m", 1)[0].Header.Get("Authorization"); got != "Bearer app-0123456789abcdef" {
		t.Errorf("the app got %q", got)
	}
	for line, want := range map[string]int{"token not read": 3, "secret not read": 1} { // throttled
		if n := strings.Count(s.log.String(), `"msg":"`+line+`"`); n != want {
			t.Errorf("%q is there %d times, want %d", line, n, want)
		}
	}
	sc.settledAll(s, 0)
}
