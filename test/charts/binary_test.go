//go:build charts

package charts

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/ca"
	"sidecar/internal/testkit/must"
)

// mounted is where the chart mounts the files that a sidecar's container has.
const mounted = "/etc/amqp-sidecar/"

// secrets makes the files that would be mounted, below a directory.
func secrets(t *testing.T, tls bool) string {
	t.Helper()
	dir := t.TempDir()
	authority := ca.New(t)
	certificate, key := authority.Issue(t, "sidecar")
	url := "amqp://user:password@rabbit.example.com/orders"
	if tls {
		url = "amqps://user:password@rabbit.example.com/orders"
	}
	write(t, dir, map[string]string{
		"broker/url": url, "broker/username": "user", "broker/password": "password",
		"tls/ca.crt": read(t, authority.CAFile()), "tls/tls.crt": read(t, certificate), "tls/tls.key": read(t, key),
		"control/token": "0123456789abcdef", "control/read-token": "fedcba9876543210", "app/token": "token",
		"publish/token": "0123456789abcdef", "outbox/dsn": "postgres://user:password@db.example.com/orders?sslmode=verify-full",
		"outbox-tls/ca.crt": read(t, authority.CAFile()),
	})
	return dir
}

// environment is that of a rendered container, as the container would see it: with files, Secrets and the memory limit.
func environment(t *testing.T, c object) []string {
	t.Helper()
	list, _ := c.at("env").([]any)
	dir := secrets(t, strings.Contains(fmt.Sprint(list), "SIDECAR_AMQP_TLS_"))
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

// eachSidecar calls check for the sidecar of each installation: the chart's examples, that of examples/kubernetes with several
// queues, and the environments of examples/topologies in extraEnv. args are the flags that make it.
func eachSidecar(t *testing.T, check func(where string, args []string, c object)) {
	t.Helper()
	several := filepath.Join(root, "examples/kubernetes/subscriptions.yaml")
	installations := map[string][]string{several: {"-f", filepath.Join(root, "examples/kubernetes/values.yaml"), "-f", several}}
	for _, values := range examples(t) {
		installations[values] = []string{"-f", values}
	}
	for _, file := range files(t, filepath.Join(root, "examples/topologies/*/*.env")) {
		var extra []map[string]string
		for line := range strings.Lines(read(t, file)) {
			name, value, found := strings.Cut(strings.TrimSpace(line), "=")
			if found && !strings.HasPrefix(name, "#") && !strings.HasPrefix(name, "SIDECAR_AMQP") {
				extra = append(extra, map[string]string{"name": name, "value": strings.Trim(value, "'\"")})
			}
		}
		installations[file] = append([]string{"-f", valuesFile(t, map[string]any{"extraEnv": extra})}, twoValues...)
	}
	for where, args := range installations {
		for _, o := range template(t, helm4, chart, args...) {
			if o.text("kind") != "Pod" && pod(o) != nil {
				check(where, args, sidecar(t, pod(o)))
			}
		}
	}
}

// TestTheSidecarTakesTheEnvironment: what the chart renders, the binary must not end with exit 64 for.
func TestTheSidecarTakesTheEnvironment(t *testing.T) {
	t.Parallel()
	eachSidecar(t, func(where string, _ []string, c object) {
		if _, err := ask(environment(t, c), "config"); err != nil {
			t.Errorf("%s: %v", where, err)
		}
		for _, file := range env(t, c) {
			if strings.HasPrefix(file, mounted) && !mounts(c, filepath.Dir(file)) {
				t.Errorf("%s: nothing is mounted at %s", where, filepath.Dir(file))
			}
		}
	})
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

// consumedBy are the queues that the sidecar consumes.
func consumedBy(t *testing.T, environ []string) (all []string) {
	t.Helper()
	for _, environ := range eachFirst(environ) {
		text := must.Get(ask(environ, "plan"))(t)
		_, line, _ := strings.Cut(text, "consume from")
		line, _, _ = strings.Cut(line, "\n")
		all = append(all, strings.TrimSpace(line))
	}
	return all
}

// TestNotesNameTheQueues: the notes have the queues that the sidecar consumes, and no other.
func TestNotesNameTheQueues(t *testing.T) {
	t.Parallel()
	eachSidecar(t, func(where string, args []string, c object) {
		if environ := environment(t, c); !slices.Contains(environ, "SIDECAR_CONSUME=off") {
			_, line, _ := strings.Cut(notes(t, chart, args...), "consumes     ")
			line, _, _ = strings.Cut(line, "\n")
			if got, want := strings.Split(line, ", "), consumedBy(t, environ); !slices.Equal(got, want) {
				t.Errorf("%s: the notes name %q, the sidecar consumes %q", where, got, want)
			}
		}
	})
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
