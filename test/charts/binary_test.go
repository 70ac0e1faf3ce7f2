//go:build charts

package charts

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

// mounted is where the chart mounts the files that a sidecar's container has.
const mounted = "/etc/amqp-sidecar/"

// secrets makes the files that would be mounted, below a directory.
func secrets(t *testing.T, tls bool) string {
	t.Helper()
	dir := t.TempDir()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der := must.Get(x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key))(t)
	private := must.Get(x509.MarshalPKCS8PrivateKey(key))(t)
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	url := "amqp://user:password@rabbit.example.com/orders"
	if tls {
		url = "amqps://user:password@rabbit.example.com/orders"
	}
	write(t, dir, map[string]string{
		"broker/url": url, "broker/username": "user", "broker/password": "password",
		"tls/ca.crt": certificate, "tls/tls.crt": certificate,
		"tls/tls.key":   string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
		"control/token": "0123456789abcdef", "control/read-token": "fedcba9876543210", "app/token": "token",
		"publish/token": "0123456789abcdef", "outbox/dsn": "postgres://user:password@db.example.com/orders?sslmode=verify-full",
		"outbox-tls/ca.crt": certificate,
	})
	return dir
}

// environment is that of a rendered container, as the container would see it: with files, Secrets and the memory limit.
func environment(t *testing.T, c object) []string {
	t.Helper()
	list, _ := c.at("env").([]any)
	tls := false
	for i := range list {
		tls = tls || strings.HasPrefix(c.text("env", i, "name"), "SIDECAR_AMQP_TLS_")
	}
	dir := secrets(t, tls)
	var all []string
	for i := range list {
		name, value := c.text("env", i, "name"), c.text("env", i, "value")
		if c.at("env", i, "valueFrom") != nil {
			value = map[string]string{"SIDECAR_AMQP_URL": "amqp://user:password@rabbit/", "SIDECAR_SUB_MAIL_APP_TOKEN": "token-of-mail", "OTEL_EXPORTER_OTLP_HEADERS": "key=value"}[name]
			if value == "" {
				t.Fatalf("%s: what is in the Secret?", name)
			}
		}
		if file, found := strings.CutPrefix(value, mounted); found {
			value = filepath.Join(dir, file)
		}
		all = append(all, name+"="+value)
	}
	limit := c.text("resources", "limits", "memory")
	if limit == "" {
		return all
	}
	return append(all, "GOMEMLIMIT="+strings.NewReplacer("Mi", "MiB", "Gi", "GiB").Replace(limit))
}

// ask runs a command of the sidecar with nothing but that environment.
func ask(environ []string, args ...string) (stdout string, err error) {
	cmd := exec.Command(program, args...)
	cmd.Env = environ
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("sidecar %s: %w\n%s\n%s", strings.Join(args, " "), err, stderr.String(), strings.Join(environ, "\n"))
	}
	return string(out), err
}

// TestTheSidecarTakesTheEnvironment: what the chart renders, the binary must not end with exit 64 for.
func TestTheSidecarTakesTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, values := range files(t, filepath.Join(chart, "ci/*-values.yaml")) {
		for _, o := range template(t, helm3, chart, "-f", values) {
			if o.text("kind") == "Pod" || pod(o) == nil {
				continue
			}
			c := sidecar(t, pod(o))
			if _, err := ask(environment(t, c), "config"); err != nil {
				t.Errorf("%s: %v", values, err)
			}
			for i := range c.at("env").([]any) {
				file := c.text("env", i, "value")
				if strings.HasPrefix(file, mounted) && !mounts(c, filepath.Dir(file)) {
					t.Errorf("%s: nothing is mounted at %s", values, filepath.Dir(file))
				}
			}
		}
	}
}

func mounts(c object, dir string) bool {
	list, _ := c.at("volumeMounts").([]any)
	return slices.ContainsFunc(list, func(m any) bool { return object(m.(map[string]any)).text("mountPath") == dir })
}

// notes are what Helm prints after an install.
func notes(t *testing.T, chart string, args ...string) string {
	t.Helper()
	out := must.Get(run(helm4, append([]string{"install", release, chart, "--dry-run=client"}, args...)...))(t)
	_, text, found := strings.Cut(out, "\nNOTES:\n")
	if !found {
		t.Fatalf("no notes: %s", out)
	}
	return text
}

// names are those of every exchange and queue that the sidecar would declare.
func names(t *testing.T, environ []string) []string {
	t.Helper()
	var all []string
	for _, environ := range eachFirst(environ) {
		out := must.Get(ask(environ, "plan", "--format", "definitions"))(t)
		var d struct {
			Exchanges, Queues []struct{ Name string }
		}
		must.Do(t, json.Unmarshal([]byte(out), &d))
		for _, x := range append(d.Exchanges, d.Queues...) {
			if !slices.Contains(all, x.Name) {
				all = append(all, x.Name)
			}
		}
	}
	return all
}

// eachFirst is the environment once for each of its subscriptions, which comes first in it.
func eachFirst(environ []string) (all [][]string) {
	const list = "SIDECAR_SUBSCRIPTIONS="
	i := slices.IndexFunc(environ, func(v string) bool { return strings.HasPrefix(v, list) })
	if i < 0 {
		return [][]string{environ}
	}
	names := strings.Split(strings.TrimPrefix(environ[i], list), ",")
	for _, first := range names {
		others := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == first })
		one := slices.Clone(environ)
		one[i] = list + strings.Join(append([]string{first}, others...), ",")
		all = append(all, one)
	}
	return all
}

// wantNames compares the words of a text with names, both ways: nothing is left out and nothing is made up.
func wantNames(t *testing.T, where, text string, want []string) {
	t.Helper()
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\n' || r == ',' })
	for _, name := range want {
		if !slices.Contains(words, name) {
			t.Errorf("%s: %s is not in the notes:\n%s", where, name, text)
		}
	}
	for line := range strings.Lines(text) {
		for _, start := range []string{"consumes     ", "  bound to   ", "retries in   ", "parks in     "} {
			// A queue may be bound to an exchange of another owner's; those have no type.
			if name, found := strings.CutPrefix(line, start); found && (start != "  bound to   " || strings.Contains(line, "(")) {
				name = strings.Trim(strings.Fields(name)[0], ",")
				if !slices.Contains(want, name) && name != "nothing:" {
					t.Errorf("%s: the sidecar has no %s:\n%s", where, name, text)
				}
			}
		}
	}
}

func TestNotesNameWhatTheSidecarDeclares(t *testing.T) {
	t.Parallel()
	for _, values := range files(t, filepath.Join(chart, "ci/*-values.yaml")) {
		for _, o := range template(t, helm4, chart, "-f", values) {
			if o.text("kind") != "Pod" && pod(o) != nil && !slices.Contains(environment(t, sidecar(t, pod(o))), "SIDECAR_CONSUME=off") {
				wantNames(t, values, notes(t, chart, "-f", values), names(t, environment(t, sidecar(t, pod(o)))))
			}
		}
	}
}

// TestNotesOfServicesThatExist takes the environments of examples/topologies through extraEnv.
func TestNotesOfServicesThatExist(t *testing.T) {
	t.Parallel()
	for _, file := range files(t, filepath.Join(root, "examples/topologies/*/*.env")) {
		type entry struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		}
		var list []entry
		for s := bufio.NewScanner(strings.NewReader(read(t, file))); s.Scan(); {
			if name, value, found := strings.Cut(s.Text(), "="); found && !strings.HasPrefix(name, "#") && !strings.HasPrefix(name, "SIDECAR_AMQP") {
				list = append(list, entry{name, strings.Trim(value, "'\"")})
			}
		}
		extra := must.Get(json.Marshal(list))(t)
		args := append([]string{"--set-json", "extraEnv=" + string(extra)}, twoValues...)
		d := find(t, template(t, helm4, chart, args...), "Deployment")
		wantNames(t, file, notes(t, chart, args...), names(t, environment(t, sidecar(t, pod(d)))))
	}
}

// TestDocumentedPlanFile: the sidecar takes the plan that docs/kubernetes.md mounts, at the place where the chart mounts it.
func TestDocumentedPlanFile(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(read(t, filepath.Join(root, "docs/kubernetes.md")), "### A plan from a file")
	_, values, _ := strings.Cut(section, "```yaml\n")
	values, _, _ = strings.Cut(values, "```")
	args := append([]string{"-f", valuesFile(t, values)}, twoValues...)
	objects := template(t, helm4, chart, args...)
	c := sidecar(t, pod(find(t, objects, "Deployment")))
	plan := valuesFile(t, find(t, objects, "ConfigMap").text("data", "plan.json"))
	environ := environment(t, c)
	i := slices.IndexFunc(environ, func(v string) bool { return strings.HasPrefix(v, "SIDECAR_PLAN_FILE=") })
	if i < 0 {
		t.Fatalf("no plan in %q", environ)
	}
	mounted := strings.TrimPrefix(environ[i], "SIDECAR_PLAN_FILE=")
	if environ[i] = "SIDECAR_PLAN_FILE=" + plan; !mounts(c, filepath.Dir(mounted)) {
		t.Errorf("nothing is mounted at %s", mounted)
	}
	if all := names(t, environ); !slices.Equal(all, []string{"documents", "billing.dead", "billing.later", "billing"}) {
		t.Errorf("the plan has %q", all)
	}
	if text := notes(t, chart, args...); !strings.Contains(text, "decided by the plan in "+mounted) {
		t.Errorf("the notes say\n%s", text)
	}
}
