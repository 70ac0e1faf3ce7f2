//go:build kubernetes

package inject

import (
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
)

const mounted = "/run/secrets/amqp-sidecar"

// TestAdmitted sends pods that are in order, and looks at what came out.
func TestAdmitted(t *testing.T) {
	for name, c := range map[string]struct {
		settings  settings
		spec      string
		namespace string
		env       map[string]string // besides the service and the URL's file
		grace     int               // 0: 60
		waits     []string          // nil: every container
		first     []string          // init containers before the sidecar
		volumes   []string          // besides the broker's
	}{
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
		"short drain":     {settings: with(settings{"shutdown-grace": "500ms"}), env: map[string]string{"SIDECAR_SHUTDOWN_GRACE": "500ms"}},
		"volumes": {settings: usual, volumes: []string{"data"},
			spec: `{"volumes": [{"name": "data", "emptyDir": {}}], "containers": [{"name": "app", "image": "a"}]}`},
		"crashes": {settings: with(settings{"crash-limit": "3"}), volumes: []string{"amqp-sidecar-crashes"},
			env: map[string]string{"SIDECAR_CRASH_LIMIT": "3", "SIDECAR_CRASH_DIR": "/var/lib/amqp-sidecar"}},
		"no crashes": {settings: with(settings{"crash-limit": "0"}), env: map[string]string{"SIDECAR_CRASH_LIMIT": "0"}},
		"topology": {settings: with(settings{"topology": "dead-letter", "topology-mode": "verify", "queue-type": "quorum", "queue": "billing", "bindings": "orders:order.*,orders:#", "max-retries": "2"}),
			env: map[string]string{"SIDECAR_TOPOLOGY": "dead-letter", "SIDECAR_TOPOLOGY_MODE": "verify", "SIDECAR_QUEUE_TYPE": "quorum", "SIDECAR_QUEUE": "billing", "SIDECAR_BINDINGS": "orders:order.*,orders:#", "SIDECAR_MAX_RETRIES": "2"}},
		"config": {settings: with(settings{"topology": "per-queue", "config": "more"}), env: map[string]string{"SIDECAR_TOPOLOGY": "per-queue"}},
		"namespace": {settings: settings{"service": "orders-billing", "concurrency": "7"}, namespace: plain,
			env: map[string]string{"SIDECAR_QUEUE_TYPE": "quorum", "SIDECAR_CONCURRENCY": "7"}},
		"namespace undone": {settings: with(settings{"queue-type": "", "concurrency": ""}), namespace: plain},
		"restricted": {settings: usual, namespace: strict, spec: `{"securityContext": {"runAsNonRoot": true, "runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}},
			"containers": [{"name": "app", "image": "a", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}`},
		"long name": {settings: with(settings{"service": strings.Repeat("a", 118) + "-b"})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.spec == "" {
				c.spec = one
			}
			p := pod(c.settings, c.spec)
			if c.namespace != "" {
				metadata(p, "namespace", c.namespace)
			}
			got, err := ask(p)
			if err != nil {
				t.Fatal(err)
			}
			env := map[string]string{"SIDECAR_SERVICE": c.settings["service"], "SIDECAR_AMQP_URL_FILE": mounted + "/url"}
			maps.Copy(env, c.env)
			if shown := got.environment(); !maps.Equal(shown, env) {
				t.Errorf("environment %v, want %v", shown, env)
			}
			if want := max(c.grace, 60); got.Spec.TerminationGracePeriodSeconds != want {
				t.Errorf("grace %d, want %d", got.Spec.TerminationGracePeriodSeconds, want)
			}
			if c.waits == nil {
				for _, container := range got.Spec.Containers {
					c.waits = append(c.waits, container.Name)
				}
			}
			for _, container := range got.Spec.Containers {
				if want := slices.Contains(c.waits, container.Name); container.waits() != want {
					t.Errorf("container %s waits for the drain: %v, want %v", container.Name, container.waits(), want)
				}
			}
			if shown := got.initNames(); !slices.Equal(shown, append(c.first, "sidecar")) {
				t.Errorf("init containers %v, want %v and the sidecar", shown, c.first)
			}
			if shown, want := got.volumes(), append(c.volumes, "amqp-sidecar-broker"); !sameSet(shown, want) {
				t.Errorf("volumes %v, want %v", shown, want)
			}
			if err := got.configured(t.TempDir()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestContainer looks at what is the same in all pods.
func TestContainer(t *testing.T) {
	t.Parallel()
	got, err := ask(pod(usual, one))
	if err != nil {
		t.Fatal(err)
	}
	sidecar, list := object{}, got.without()["spec"].(object)["initContainers"].([]any)
	maps.Copy(sidecar, list[0].(object))
	for _, key := range []string{"env", "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "image"} {
		delete(sidecar, key)
	}
	shown, err := json.MarshalIndent(sidecar, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/sidecar.json")
	if err != nil {
		t.Fatal(err)
	}
	if string(shown)+"\n" != string(want) {
		t.Errorf("the container is\n%s\ntestdata/sidecar.json says\n%s", shown, want)
	}
	if got.find("app").Lifecycle.PreStop.Exec != nil {
		t.Error("the app has the sidecar's hook")
	}
}

func (p *Pod) environment() map[string]string {
	env := map[string]string{}
	for _, e := range p.find("sidecar").Env {
		env[e.Name] = e.Value
	}
	return env
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
		if file, found := strings.CutPrefix(value, mounted); found {
			value = filepath.Join(secrets, file)
			if err := os.WriteFile(value, []byte("amqp://u:p@rabbit:5672/\n"), 0o600); err != nil {
				return err
			}
		}
		env = append(env, e.Name+"="+value)
	}
	cmd := exec.Command(binary, "config")
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("sidecar config: %w with %q\n%s", err, env, out)
	}
	return nil
}
