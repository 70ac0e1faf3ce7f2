//go:build kubernetes

package inject

import (
	"cmp"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// TestRefused sends pods that would come up wrong. Each is refused with a message that says what to do.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		settings  settings
		spec      string
		label     string
		namespace string
		defaultTo string // kubectl.kubernetes.io/default-container
		want      []string
	}{
		"no service":            {settings: settings{"broker-secret": "rabbit"}, want: []string{"amqp-sidecar/service is required: the name of the service, such as orders-billing"}},
		"no broker":             {settings: settings{"service": "orders-billing"}, want: []string{"amqp-sidecar/broker-secret is required: the name of a Secret"}},
		"label":                 {settings: usual, label: "yes", want: []string{`label amqp-sidecar/inject="yes": allowed: true or false`}},
		"empty label":           {settings: usual, label: "-", want: []string{`label amqp-sidecar/inject="": allowed: true or false`}},
		"port":                  {settings: with(settings{"app-port": "http"}), want: []string{`amqp-sidecar/app-port="http": allowed: 1 to 65535`}},
		"our port":              {settings: with(settings{"app-port": "9091"}), want: []string{`amqp-sidecar/app-port="9091": 9091 is the control port of the sidecar`}},
		"admin port":            {settings: with(settings{"app-port": "3000", "admin-port": "3000"}), want: []string{`amqp-sidecar/app-port="3000": that is the port of the sidecar; amqp-sidecar/admin-port gives it another`}},
		"app's default port":    {settings: with(settings{"admin-port": "8080"}), want: []string{`amqp-sidecar/admin-port="8080": that is the port of the app, as amqp-sidecar/app-port is not set`}},
		"little memory":         {settings: with(settings{"memory-limit": "16Mi", "memory-request": "8Mi"}), want: []string{`amqp-sidecar/memory-limit="16Mi": allowed: 32Mi and more`}},
		"request over limit":    {settings: with(settings{"memory-limit": "1Gi", "memory-request": "1025Mi"}), want: []string{`amqp-sidecar/memory-request="1025Mi": more than amqp-sidecar/memory-limit, which is 1Gi`}},
		"publish at control":    {settings: with(settings{"publish-port": "9091"}), want: []string{`amqp-sidecar/publish-port="9091": 9091 is the control port`}},
		"outbox":                {settings: with(settings{"outbox-secret": "Data_base"}), want: []string{`amqp-sidecar/outbox-secret="Data_base": allowed: the name of a Secret`}},
		"outbox's key alone":    {settings: with(settings{"outbox-secret-key": "dsn"}), want: []string{`amqp-sidecar/outbox-secret-key="dsn" needs amqp-sidecar/outbox-secret`}},
		"memory":                {settings: with(settings{"memory-limit": "128MB", "memory-request": "1", "cpu-request": "a lot"}), want: []string{`amqp-sidecar/memory-limit="128MB": allowed: a quantity in Mi or Gi`, `amqp-sidecar/memory-request="1"`, `amqp-sidecar/cpu-request="a lot"`}},
		"preset":                {settings: with(settings{"topology": "fan-out"}), want: []string{`amqp-sidecar/topology="fan-out": allowed: fanout, topic-tiers, per-queue, delay-ladder, dead-letter or native`}},
		"native classic queues": {settings: with(settings{"topology": "native", "queue-type": "classic"}), want: []string{`amqp-sidecar/queue-type="classic": with the topology native only auto or quorum`}},
		"long name":             {settings: with(settings{"service": strings.Repeat("a", 121)}), want: []string{"aaa…\": allowed: letters, digits, ., _ and -, at most 120"}},
		"typo":                  {settings: with(settings{"conccurrency": "5"}), want: []string{"amqp-sidecar/conccurrency: unknown annotation; known are service, broker-secret"}},
		"line break":            {settings: with(settings{"service": "a\nb"}), want: []string{`amqp-sidecar/service="a b": allowed`}},
		"bindings":              {settings: with(settings{"topology": "per-queue"}), want: []string{`amqp-sidecar/topology="per-queue" needs amqp-sidecar/bindings, or SIDECAR_BINDINGS in the ConfigMap`}},
		"queue":                 {settings: with(settings{"topology": "dead-letter", "bindings": "a:b"}), want: []string{`amqp-sidecar/topology="dead-letter" needs amqp-sidecar/queue`}},
		"no hyphen":             {settings: with(settings{"service": "wms-", "topology": "topic-tiers"}), want: []string{`amqp-sidecar/service="wms-": with the topology topic-tiers the queue is named after what follows the first hyphen`}},
		"drain":                 {settings: with(settings{"shutdown-grace": "61m"}), want: []string{`amqp-sidecar/shutdown-grace="61m": allowed: a duration from 0s to 1h`}},
		"config":                {settings: with(settings{"config": "More_"}), want: []string{`amqp-sidecar/config="More_": allowed: the name of a ConfigMap`}},
		"image":                 {settings: with(settings{"image": "My Image"}), want: []string{`amqp-sidecar/image="My Image": allowed: the reference of an image`}},
		"app container":         {settings: with(settings{"app-container": "web"}), want: []string{`amqp-sidecar/app-container="web": allowed: app`}},
		"own hook": {settings: usual, want: []string{"container app has a preStop hook of its own", "or set amqp-sidecar/app-pre-stop to keep"},
			spec: `{"containers": [{"name": "app", "image": "a", "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}]}`},
		"own hook of a named app": {settings: with(settings{"app-container": "web"}), want: []string{"container web has a preStop hook of its own"},
			spec: `{"containers": [{"name": "app", "image": "a"}, {"name": "web", "image": "a", "lifecycle": {"preStop": {"exec": {"command": ["true"]}}}}]}`},
		"own hook of the default container": {settings: usual, defaultTo: "web", want: []string{"container web has a preStop hook of its own"},
			spec: `{"containers": [{"name": "app", "image": "a"}, {"name": "web", "image": "a", "lifecycle": {"preStop": {"exec": {"command": ["true"]}}}}]}`},
		"host network": {settings: usual, want: []string{"hostNetwork: the ports of the sidecar would be those of the node"},
			spec: `{"hostNetwork": true, "containers": [{"name": "app", "image": "a"}]}`},
		"taken port": {settings: usual, want: []string{"container app has the port 9090, which is that of the sidecar: amqp-sidecar/admin-port gives it another", "container app has the port 9091, which is the control port"},
			spec: `{"containers": [{"name": "app", "image": "a", "ports": [{"containerPort": 9090}, {"containerPort": 80}, {"containerPort": 9091}]}]}`},
		"port to publish to": {settings: with(settings{"publish-port": "9092"}), want: []string{"container app has the port 9092, on which the sidecar takes messages"},
			spec: `{"containers": [{"name": "app", "image": "a", "ports": [{"containerPort": 9092}]}]}`},
		"port of a native sidecar": {settings: usual, want: []string{"container mesh has the port 9090, which is that of the sidecar", "container logs has the port 9091"},
			spec: `{"initContainers": [{"name": "mesh", "image": "m", "restartPolicy": "Always", "ports": [{"containerPort": 9090}]}, {"name": "logs", "image": "m", "restartPolicy": "Always", "ports": [{"containerPort": 9091}]}], "containers": [{"name": "app", "image": "a"}]}`},
		"hook at the port before": {settings: with(settings{"admin-port": "9190"}), want: []string{"container app has a preStop hook of its own"},
			spec: `{"containers": [{"name": "app", "image": "a", "lifecycle": {"preStop": {"httpGet": {"path": "/drained", "port": 9090}}}}]}`},
		"a container of that name": {settings: usual, want: []string{"the pod has a container named sidecar, which has no port sidecar-admin"},
			spec: `{"containers": [{"name": "app", "image": "a"}, {"name": "sidecar", "image": "log-shipper"}]}`},
		"hook at a name": {settings: usual, want: []string{"container app has a preStop hook of its own"},
			spec: `{"containers": [{"name": "app", "image": "a", "lifecycle": {"preStop": {"httpGet": {"path": "/drained", "port": "sidecar-admin"}}}}]}`},
		"hook at another host": {settings: usual, want: []string{"container app has a preStop hook of its own"},
			spec: `{"containers": [{"name": "app", "image": "a", "lifecycle": {"preStop": {"httpGet": {"host": "127.0.0.1", "path": "/drained", "port": 9090}}}}]}`},
		"hook with TLS": {settings: usual, want: []string{"container app has a preStop hook of its own"},
			spec: `{"containers": [{"name": "app", "image": "a", "lifecycle": {"preStop": {"httpGet": {"scheme": "HTTPS", "path": "/drained", "port": 9090}}}}]}`},
		"own hook, default container of another name": {settings: usual, defaultTo: "web", want: []string{"container app has a preStop hook of its own"},
			spec: `{"containers": [{"name": "app", "image": "a", "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}]}`},
		"an init container of that name": {settings: usual, want: []string{"the pod has a container named sidecar, which has no port sidecar-admin"},
			spec: `{"initContainers": [{"name": "sidecar", "image": "log-shipper"}], "containers": [{"name": "app", "image": "a"}]}`},
		"of the namespace": {settings: settings{"service": "orders-billing", "broker-secret": ""}, namespace: plain, want: []string{"amqp-sidecar/broker-secret is required"}},
		"all at once": {settings: settings{"app-port": "0", "max-retries": "-1", "concurrency": "x", "typo": "1"},
			want: []string{"amqp-sidecar/app-port=", "; amqp-sidecar/max-retries=", "; amqp-sidecar/concurrency=", "; amqp-sidecar/service is required", "; amqp-sidecar/broker-secret is required", "; amqp-sidecar/typo: unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pod(c.settings, cmp.Or(c.spec, one))
			if c.label != "" {
				metadata(p, "labels", object{"amqp-sidecar/inject": strings.Trim(c.label, "-")})
			}
			if c.namespace != "" {
				metadata(p, "namespace", c.namespace)
			}
			if c.defaultTo != "" {
				p["metadata"].(object)["annotations"].(object)["kubectl.kubernetes.io/default-container"] = c.defaultTo
			}
			got, err := ask(p)
			if err == nil {
				t.Fatalf("admitted: %s", got.raw)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\ndoes not say %q", err, want)
				}
			}
		})
	}
}

// TestLongMessage has more to say than the API server lets a policy say.
func TestLongMessage(t *testing.T) {
	t.Parallel()
	typos := with(nil)
	for i := range 26 {
		typos[strings.Repeat(string(rune('a'+i)), 40)] = ""
	}
	_, err := ask(pod(typos, one))
	if err == nil || !strings.Contains(err.Error(), "more problems than a message can hold") {
		t.Errorf("%v", err)
	}
}

// quiet is a pod without the volume of the service account, whose name is random.
const quiet = `{"automountServiceAccountToken": false, "containers": [{"name": "app", "image": "a"}]}`

// TestUntouched sends pods that no policy is for, whatever else is on them. They pass as they would without
// the policies, of which the namespace that is left alone is the proof.
func TestUntouched(t *testing.T) {
	const port = `"ports": [{"name": "sidecar-admin", "containerPort": 9090}], "env": [{"name": "SIDECAR_SERVICE", "value": "x"}]`
	wrong := settings{"app-port": "nonsense", "whatever": "x"}
	for name, p := range map[string]object{
		"no label":      metadata(pod(wrong, quiet), "labels", object{"app": "x"}),
		"label false":   metadata(pod(wrong, quiet), "labels", object{"amqp-sidecar/inject": "false"}),
		"of the system": metadata(pod(wrong, quiet), "namespace", "kube-system"),
		"left alone":    metadata(pod(wrong, quiet), "namespace", closed),
		"host network":  metadata(pod(nil, `{"automountServiceAccountToken": false, "hostNetwork": true, "containers": [{"name": "sidecar", "image": "s"}]}`), "labels", object{}),
		// A pod that brings a sidecar, as those of the chart do: the label changes nothing, and no annotation is asked for.
		"own native sidecar": pod(nil, `{"automountServiceAccountToken": false, "initContainers": [{"name": "sidecar", "image": "s", "restartPolicy": "Always", `+port+`}], "containers": [{"name": "app", "image": "a"}]}`),
		"own container":      pod(nil, `{"automountServiceAccountToken": false, "containers": [{"name": "app", "image": "a"}, {"name": "sidecar", "image": "s", `+port+`}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := must.Get(ask(p))(t)
			reference := metadata(object{"apiVersion": "v1", "kind": "Pod", "spec": p["spec"], "metadata": p["metadata"]}, "namespace", closed)
			want := must.Get(ask(reference))(t)
			if c := want.find("sidecar"); c != nil && c.Image != "s" {
				t.Fatal("the policies apply to the namespace that is left alone")
			}
			if !same(got, want) {
				t.Errorf("changed to %s\nfrom %s", got.raw, want.raw)
			}
		})
	}
}

// TestInjectedAgain sends what came out of the admission through it once more, as restoring a backup would.
func TestInjectedAgain(t *testing.T) {
	t.Parallel()
	once := must.Get(ask(pod(with(settings{"concurrency": "2", "app-port": "3000"}), quiet)))(t)
	again := metadata(once.without(), "namespace", space)
	delete(again, "status")
	twice := must.Get(ask(again))(t)
	if !same(once, twice) {
		t.Errorf("injected twice: %s\nonce: %s", twice.raw, once.raw)
	}
}
