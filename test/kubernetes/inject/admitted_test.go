//go:build kubernetes

package inject

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

const mounted = "/etc/amqp-sidecar/broker"

// admitted is a pod that is in order, and what comes out.
type admitted struct {
	settings  settings
	spec      string // "": one
	namespace string
	env       map[string]string // besides the service and the URL's file
	grace     int               // 0: 60
	port      int               // 0: 9090
	waits     []string          // nil: every container
	first     []string          // init containers before the sidecar
	volumes   []string          // besides the broker's and the spool
}

var admittedPods = map[string]admitted{
	"plain":          {settings: usual},
	"app":            {settings: with(settings{"app-port": "3000", "app-path": "/events"}), env: map[string]string{"SIDECAR_APP_URL": "http://127.0.0.1:3000/events"}},
	"port alone":     {settings: with(settings{"app-port": "65535"}), env: map[string]string{"SIDECAR_APP_URL": "http://127.0.0.1:65535/"}},
	"path alone":     {settings: with(settings{"app-path": "/"}), env: map[string]string{"SIDECAR_APP_URL": "http://127.0.0.1:8080/"}},
	"health":         {settings: with(settings{"app-health-path": "/healthz"}), env: map[string]string{"SIDECAR_APP_HEALTH_PATH": "/healthz"}},
	"key":            {settings: with(settings{"broker-secret-key": "connection_string"}), env: map[string]string{"SIDECAR_AMQP_URL_FILE": mounted + "/connection_string"}},
	"empty is unset": {settings: with(settings{"concurrency": "", "topology": "", "config": ""})},
	"several":        {settings: usual, spec: `{"containers": [{"name": "app", "image": "a"}, {"name": "proxy", "image": "b"}]}`},
	"another lifecycle": {settings: usual,
		spec: `{"containers": [{"name": "app", "image": "a", "lifecycle": {"postStart": {"exec": {"command": ["true"]}}, "stopSignal": "SIGQUIT"}}], "os": {"name": "linux"}}`},
	"own hook kept": {settings: with(settings{"app-pre-stop": "keep"}), waits: []string{"proxy"},
		spec: `{"containers": [{"name": "app", "image": "a", "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}, {"name": "proxy", "image": "b"}]}`},
	"own hook of another": {settings: with(settings{"app-container": "app"}), waits: []string{"app"},
		spec: `{"containers": [{"name": "mesh", "image": "a", "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}, {"name": "app", "image": "b"}]}`},
	"no hook":         {settings: with(settings{"app-pre-stop": "none"}), waits: []string{}},
	"init containers": {settings: usual, first: []string{"migrate", "mesh"}, spec: `{"initContainers": [{"name": "migrate", "image": "m"}, {"name": "mesh", "image": "m", "restartPolicy": "Always"}], "containers": [{"name": "app", "image": "a"}]}`},
	"job":             {settings: usual, spec: `{"restartPolicy": "Never", "containers": [{"name": "app", "image": "a"}]}`},
	"short grace":     {settings: usual, spec: `{"terminationGracePeriodSeconds": 5, "containers": [{"name": "app", "image": "a"}]}`},
	"long grace":      {settings: usual, grace: 600, spec: `{"terminationGracePeriodSeconds": 600, "containers": [{"name": "app", "image": "a"}]}`},
	"long drain":      {settings: with(settings{"shutdown-grace": "2m30s"}), grace: 185, env: map[string]string{"SIDECAR_SHUTDOWN_GRACE": "2m30s"}},
	"volumes": {settings: usual, volumes: []string{"data"},
		spec: `{"volumes": [{"name": "data", "emptyDir": {}}], "containers": [{"name": "app", "image": "a"}]}`},
	"messages of the app": {settings: with(settings{"publish-port": "9092", "outbox-secret": "db"}), volumes: []string{"amqp-sidecar-outbox"},
		env: map[string]string{"SIDECAR_PUBLISH_ADDR": "127.0.0.1:9092", "SIDECAR_OUTBOX_DSN_FILE": "/etc/amqp-sidecar/outbox/dsn"}},
	"key of the database": {settings: with(settings{"outbox-secret": "db", "outbox-secret-key": "uri"}), volumes: []string{"amqp-sidecar-outbox"},
		env: map[string]string{"SIDECAR_OUTBOX_DSN_FILE": "/etc/amqp-sidecar/outbox/uri"}},
	"no retries": {settings: with(settings{"max-retries": "0"}), env: map[string]string{"SIDECAR_MAX_RETRIES": "0"}},
	"topology": {settings: with(settings{"topology": "dead-letter", "topology-mode": "verify", "queue-type": "quorum", "queue": "billing", "bindings": "orders:order.*,orders:#", "max-retries": "2"}),
		env: map[string]string{"SIDECAR_TOPOLOGY": "dead-letter", "SIDECAR_TOPOLOGY_MODE": "verify", "SIDECAR_QUEUE_TYPE": "quorum", "SIDECAR_QUEUE": "billing", "SIDECAR_BINDINGS": "orders:order.*,orders:#", "SIDECAR_MAX_RETRIES": "2"}},
	"config": {settings: with(settings{"topology": "per-queue", "config": "more"}), env: map[string]string{"SIDECAR_TOPOLOGY": "per-queue"}},
	"namespace": {settings: settings{"service": "orders-billing", "concurrency": "7"}, namespace: plain,
		env: map[string]string{"SIDECAR_QUEUE_TYPE": "quorum", "SIDECAR_CONCURRENCY": "7"}},
	"namespace undone": {settings: with(settings{"queue-type": "", "concurrency": ""}), namespace: plain},
	"restricted": {settings: usual, namespace: strict, spec: `{"securityContext": {"runAsNonRoot": true, "runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}},
			"containers": [{"name": "app", "image": "a", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}`},
	"another port": {settings: with(settings{"admin-port": "9190", "app-port": "9090"}), port: 9190,
		env:  map[string]string{"SIDECAR_ADMIN_ADDR": ":9190", "SIDECAR_APP_URL": "http://127.0.0.1:9090/"},
		spec: `{"containers": [{"name": "app", "image": "a", "ports": [{"containerPort": 9090}]}]}`},
	"the injected hook": {settings: with(settings{"admin-port": "9190"}), port: 9190, env: map[string]string{"SIDECAR_ADMIN_ADDR": ":9190"},
		spec: `{"containers": [{"name": "app", "image": "a", "lifecycle": {"preStop": {"httpGet": {"path": "/drained", "port": 9190}}}}]}`},
	"the app's default port": {settings: with(settings{"admin-port": "8080", "app-port": "3000"}), port: 8080,
		env: map[string]string{"SIDECAR_ADMIN_ADDR": ":8080", "SIDECAR_APP_URL": "http://127.0.0.1:3000/"}},
	"port of an init container that ends": {settings: usual, first: []string{"migrate"},
		spec: `{"initContainers": [{"name": "migrate", "image": "m", "ports": [{"containerPort": 9090}]}], "containers": [{"name": "app", "image": "a"}]}`},
	"least memory": {settings: with(settings{"memory-limit": "32Mi"})},
	"large":        {settings: with(nil), spec: large(), waits: nil},
}

func TestAdmitted(t *testing.T) {
	for name, c := range admittedPods {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pod(c.settings, cmp.Or(c.spec, one))
			if c.namespace != "" {
				metadata(p, "namespace", c.namespace)
			}
			got := must.Get(ask(p))(t)
			c.compare(t, got)
			if name == "plain" {
				got.sameContainer(t)
			}
			if err := got.configured(t.TempDir()); err != nil {
				t.Error(err)
			}
		})
	}
}

func (c *admitted) compare(t *testing.T, got *Pod) {
	t.Helper()
	env := map[string]string{"SIDECAR_SERVICE": c.settings["service"], "SIDECAR_AMQP_URL_FILE": mounted + "/url", "SIDECAR_SPOOL_DIR": "/var/spool/amqp-sidecar"}
	maps.Copy(env, c.env)
	if shown := got.environment(); !maps.Equal(shown, env) {
		t.Errorf("environment %v, want %v", shown, env)
	}
	if want := max(c.grace, 60); got.Spec.TerminationGracePeriodSeconds != want {
		t.Errorf("grace %d, want %d", got.Spec.TerminationGracePeriodSeconds, want)
	}
	for _, container := range got.Spec.Containers {
		want := 0
		if c.waits == nil || slices.Contains(c.waits, container.Name) {
			want = cmp.Or(c.port, 9090)
		}
		if container.waits() != want {
			t.Errorf("container %s waits at port %d, want %d", container.Name, container.waits(), want)
		}
	}
	if shown := got.initNames(); !slices.Equal(shown, append(c.first, "sidecar")) {
		t.Errorf("init containers %v, want %v and the sidecar", shown, c.first)
	}
	if shown, want := got.volumes(), append(c.volumes, "amqp-sidecar-broker", "amqp-sidecar-spool"); !sameSet(shown, want) {
		t.Errorf("volumes %v, want %v", shown, want)
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	got := must.Get(ask(pod(with(settings{"cpu-request": "1", "memory-request": "64Mi", "memory-limit": "1Gi"}), one)))(t)
	r := got.find("sidecar").Resources
	if !maps.Equal(r.Requests, map[string]string{"cpu": "1", "memory": "64Mi"}) || !maps.Equal(r.Limits, map[string]string{"memory": "1Gi"}) {
		t.Errorf("%+v", r)
	}
}

// sameContainer compares what is the same wherever a sidecar comes from.
func (p *Pod) sameContainer(t *testing.T) {
	t.Helper()
	var all struct {
		Spec struct{ InitContainers []object }
	}
	must.Do(t, json.Unmarshal(p.raw, &all))
	sidecar := all.Spec.InitContainers[slices.IndexFunc(all.Spec.InitContainers, func(c object) bool { return c["name"] == "sidecar" })]
	for _, key := range []string{"env", "envFrom", "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "image"} {
		delete(sidecar, key)
	}
	shown := must.Get(json.MarshalIndent(sidecar, "", " "))(t)
	want := must.Get(os.ReadFile("testdata/sidecar.json"))(t)
	if string(shown)+"\n" != string(want) {
		t.Errorf("the container is\n%s\ntestdata/sidecar.json says\n%s", shown, want)
	}
}

// large is a pod of 40 containers: a policy has a budget for what it evaluates.
func large() string {
	var env, ports, all []string
	for i := range 100 {
		env = append(env, fmt.Sprintf(`{"name": "SOME_VARIABLE_%d", "value": %q}`, i, strings.Repeat("x", 200)))
		ports = append(ports, fmt.Sprintf(`{"containerPort": %d}`, 10000+i))
	}
	for i := range 40 {
		all = append(all, fmt.Sprintf(`{"name": "c%d", "image": "a", "env": [%s], "ports": [%s]}`, i, strings.Join(env, ","), strings.Join(ports, ",")))
	}
	return `{"containers": [` + strings.Join(all, ",") + `]}`
}

func (p *Pod) environment() map[string]string {
	env := map[string]string{}
	for _, e := range p.find("sidecar").Env {
		env[e.Name] = e.Value
	}
	return env
}

// brokerSecret is the name of the secret that holds the broker's URL; "" without one.
func (p *Pod) brokerSecret() string {
	for _, v := range p.Spec.Volumes {
		if v.Name == "amqp-sidecar-broker" && v.Secret != nil {
			return v.Secret.SecretName
		}
	}
	return ""
}

func (p *Pod) initNames() (names []string) {
	for _, c := range p.Spec.InitContainers {
		names = append(names, c.Name)
	}
	return names
}

// volumes lists them without the one of the service account.
func (p *Pod) volumes() (names []string) {
	for _, v := range p.Spec.Volumes {
		if !strings.HasPrefix(v.Name, "kube-api-access-") {
			names = append(names, v.Name)
		}
	}
	return names
}

func sameSet(a, b []string) bool {
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// configured gives the environment of the injected container to the real binary, as the kubelet would: the ConfigMap is
// read, and the secret's file is there.
func (p *Pod) configured(secrets string) error {
	sidecar := p.find("sidecar")
	if sidecar == nil {
		return errors.New("there is no sidecar")
	}
	var env []string
	for _, from := range sidecar.EnvFrom {
		raw, err := call(http.MethodGet, "/api/v1/namespaces/"+p.Metadata.Namespace+"/configmaps/"+from.ConfigMapRef.Name, nil)
		if err != nil {
			return err
		}
		var m struct{ Data map[string]string }
		if err := json.Unmarshal(raw, &m); err != nil {
			return err
		}
		for name, value := range m.Data {
			env = append(env, name+"="+value)
		}
	}
	for _, e := range sidecar.Env { // later ones count, and these are later
		value := e.Value
		for dir, text := range map[string]string{mounted: "amqp://u:p@rabbit:5672/\n", "/etc/amqp-sidecar/outbox": "postgres://u:p@db/orders\n"} {
			if file, found := strings.CutPrefix(value, dir); found {
				value = filepath.Join(secrets, file)
				if err := os.WriteFile(value, []byte(text), 0o600); err != nil {
					return err
				}
			}
		}
		env = append(env, e.Name+"="+value)
	}
	env = append(env, "GOMEMLIMIT="+sidecar.Resources.Limits["memory"]+"B")
	cmd := exec.Command(binary, "config")
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("sidecar config: %w with %q\n%s", err, env, out)
	}
	return nil
}
