//go:build kubernetes

package inject

import (
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// values are what the policy and the binary have to agree about.
var values = map[string]struct {
	variable    string // of the binary, with %s for the value
	good, bad   []string
	notByPolicy []string // what the binary would take: written another way, or by amqp-sidecar/config
}{
	"service": {variable: "SIDECAR_SERVICE=%s",
		good:        []string{"a", "a-b", "9", "A.b_c-d", ".a", "_", "amq", "x-" + strings.Repeat("y", 118), strings.Repeat("y", 118) + "-x", strings.Repeat("y", 120)},
		bad:         []string{"-a", "amq.a", "amq-x", "a b", "a/b", "ä", "a:b", "a,b", "${X}", strings.Repeat("y", 250)},
		notByPolicy: []string{strings.Repeat("y", 121)}},
	"app-timeout": {variable: "SIDECAR_APP_TIMEOUT=%s",
		good:        []string{"1ms", "30s", "1.5s", "20m", "1m30s", "0.25h"},
		bad:         []string{"0s", "0", "30", "20m1ms", "-1s", "1d", "s", "1 s", "1h"},
		notByPolicy: []string{"10000ms", "1000us", "1m1s1ms1ms", "+1s", ".5s"}},
	"shutdown-grace": {variable: "SIDECAR_SHUTDOWN_GRACE=%s",
		good: []string{"0s", "25s", "1h", "59m59.999s", "1500ms"}, bad: []string{"0", "25", "1h1ms", "-1s", "forever"}},
	"concurrency": {variable: "SIDECAR_CONCURRENCY=%s",
		good: []string{"1", "9", "10", "9999", "10000"}, bad: []string{"0", "-1", "10001", "+5", "1.0", "many", "99999999999999999999", "0x10"}, notByPolicy: []string{"007"}},
	"max-retries": {variable: "SIDECAR_MAX_RETRIES=%s",
		good: []string{"0", "1", "10", "999999", "1000000"}, bad: []string{"-1", "1000001", "+1", "ten", "1e3"}, notByPolicy: []string{"010"}},
	"topology-mode": {variable: "SIDECAR_TOPOLOGY_MODE=%s", good: []string{"declare", "verify", "none"}, bad: []string{"Declare", "off", "passive"}},
	"queue-type":    {variable: "SIDECAR_QUEUE_TYPE=%s", good: []string{"classic", "quorum"}, bad: []string{"Quorum", "stream"}},
	"topology":      {variable: "SIDECAR_TOPOLOGY=%s", good: []string{"fanout", "topic-tiers", "native"}, bad: []string{"Fanout", "topic", "headers"}},
	"queue": {variable: "SIDECAR_QUEUE=%s",
		good: []string{"q", "a.b-c_d:e/f", "-x", "amq", "orders.dlq.orders", strings.Repeat("q", 200)}, bad: []string{"amq.q", "orders.dlq.orders-billing", "orders.retry-queue.orders-billing", strings.Repeat("q", 256)},
		notByPolicy: []string{".q", "a b", "a,b", "ä", "$(HOME)", strings.Repeat("q", 201)}},
	"bindings": {variable: "SIDECAR_BINDINGS=%s",
		good: []string{"e:k", "e:", "e:#", "e:a.*,e:b.#", "e:k,f:k", "-e:a-b", "e:a:b", "e:a/b:#", "amq.topic:k"}, bad: []string{"e", ":k", "e:k,", "e:k,e:k", ",", "e:k,,f:k", "amq.zzz:k", "e:k,amq.:k", "orders.retry-exchange.orders-billing:k"},
		notByPolicy: []string{"e:k, f:k", "e e:k"}},
	"app-port": {variable: "SIDECAR_APP_URL=http://127.0.0.1:%s/",
		good: []string{"1", "9", "10000", "59999", "64999", "65499", "65529", "65535"},
		bad:  []string{"0", "65536", "70000", "-1", "http", "80:80"}},
	"app-path": {variable: "SIDECAR_APP_URL=http://127.0.0.1:8080%s",
		good: []string{"/", "/a/b?c=d", "/?a", "/a/"}, bad: []string{"a", "//a", "/a#b", "/a/../b", "/a b", "/%00"}},
	"app-health-path": {variable: "SIDECAR_APP_HEALTH_PATH=%s",
		good:        []string{"/", "/healthz", "/a/b.c/", "/.well-known/x", "/a?b=c&d=/e", "/a;b=1,2@x:y*!~+", "/a..b", "/?x"},
		bad:         []string{"healthz", "//a", "/a/..", "/../a", "/.", "/a b", "/a#b", "/a%0a", "/a%zz", "/a/./b", "/a/%2e%2E/b", "http://x/", "/ä", "/a\\b", "/a|b"},
		notByPolicy: []string{"/a%20b", "/a//b", "/$(HOME)", "/it's"}},
}

// TestValues gives each value to the policy and to the binary. What one admits the other takes; what it refuses would
// not have started, or is said otherwise on purpose.
func TestValues(t *testing.T) {
	for key, c := range values {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			for _, value := range c.good {
				if err := taken(t, with(settings{key: value})); err != nil {
					t.Errorf("%q: %v", value, err)
				}
			}
			for _, value := range append(c.bad, c.notByPolicy...) {
				if _, err := ask(pod(with(settings{key: value}), one)); err == nil {
					t.Errorf("%q is admitted", value)
				} else if !strings.Contains(err.Error(), "amqp-sidecar/"+key+"=") {
					t.Errorf("%q: the message does not name it: %v", value, err)
				}
			}
			for _, value := range c.bad {
				if starts(fmt.Sprintf(c.variable, value)) {
					t.Errorf("the binary takes "+c.variable, value)
				}
			}
			for _, value := range c.notByPolicy {
				if !starts(fmt.Sprintf(c.variable, value)) {
					t.Errorf("the binary does not take "+c.variable+" either", value)
				}
			}
		})
	}
}

// TestTopologies crosses what a topology is made of.
func TestTopologies(t *testing.T) {
	t.Parallel()
	admitted := 0
	for _, topology := range []string{"", "fanout", "topic-tiers", "per-queue", "delay-ladder", "dead-letter", "native"} {
		for _, queueType := range []string{"", "classic", "quorum"} {
			for _, queue := range []string{"", "billing"} {
				for _, bindings := range []string{"", "orders.events:order.*"} {
					for _, service := range []string{"wms", "wms-", "wms-x", strings.Repeat("w", 118) + "-x"} {
						s := settings{"service": service, "broker-secret": "rabbit", "topology": topology, "queue-type": queueType, "queue": queue, "bindings": bindings}
						got := agreed(t, s, "SIDECAR_SERVICE="+service, "SIDECAR_TOPOLOGY="+topology, "SIDECAR_QUEUE_TYPE="+queueType,
							"SIDECAR_QUEUE="+queue, "SIDECAR_BINDINGS="+bindings)
						if got != nil {
							admitted++
							if err := got.configured(t.TempDir()); err != nil {
								t.Errorf("%v: %v", s, err)
							}
						}
					}
				}
			}
		}
	}
	if admitted < 100 {
		t.Errorf("only %d were admitted", admitted)
	}
}

// TestTakenNames gives the queue and an exchange of the bindings every name that one of the topologies gives to
// something.
func TestTakenNames(t *testing.T) {
	t.Parallel()
	refused := 0
	for _, topology := range []string{"fanout", "topic-tiers", "per-queue", "delay-ladder", "dead-letter", "native"} {
		for _, service := range []string{"orders-billing", "orders", "orders-events.dlq"} {
			prefix, rest, hyphen := strings.Cut(service, "-")
			if !hyphen {
				prefix, rest = "default", service
			}
			for _, template := range []string{
				"P.queue.S", "P.retry-queue.S", "P.dlq.S", "P.retry-exchange.S", "P", "P.dlx", "P.events", "P.events.retry", "P.events.dlx", "P.events.dlq",
				"P.R", "P.R.retry", "P.R.retry.30s", "P.R.retry.5m", "P.R.retry.30m", "q.S", "retry.q.S", "dlq.q.S", "retry.billing", "dlq.billing",
			} {
				name := strings.NewReplacer("P", prefix, "R", rest, "S", service).Replace(template)
				for _, s := range []settings{{"queue": name, "bindings": "e:k"}, {"queue": "billing", "bindings": name + ":k"}, {"queue": "", "bindings": name + ":k"}} {
					s["topology"], s["service"] = topology, service
					if agreed(t, with(s), "SIDECAR_SERVICE="+service, "SIDECAR_TOPOLOGY="+topology, "SIDECAR_QUEUE="+s["queue"],
						"SIDECAR_BINDINGS="+s["bindings"]) == nil {
						refused++
					}
				}
			}
		}
	}
	if refused < 40 {
		t.Errorf("only %d were refused", refused)
	}
}

// TestTogether crosses settings that are fine each on its own.
func TestTogether(t *testing.T) {
	t.Parallel()
	for _, app := range []string{"", "8080", "9090", "3000"} {
		for _, admin := range []string{"", "8080", "9090", "3000"} {
			agreed(t, with(settings{"app-port": app, "admin-port": admin}),
				"SIDECAR_APP_URL=http://127.0.0.1:"+cmp.Or(app, "8080"), "SIDECAR_ADMIN_ADDR=:"+cmp.Or(admin, "9090"))
		}
	}
	for _, limit := range []string{"16Mi", "21Mi"} {
		if agreed(t, with(settings{"memory-limit": limit, "memory-request": "8Mi"}), "GOMEMLIMIT="+limit+"B") != nil {
			t.Errorf("a limit of %s is admitted", limit)
		}
	}
}

// agreed gives settings to the policy and a configuration to the binary: both take it, or neither. It returns what comes out
// of the admission, nil when that is nothing.
func agreed(t *testing.T, s settings, env ...string) *Pod {
	t.Helper()
	got, err := ask(pod(s, one))
	if ok := starts(env...); ok != (err == nil) {
		t.Errorf("%v: the binary starts: %v, the policy says: %v", s, ok, err)
	}
	return got
}

// taken gives settings to the policy, and what it makes of them to the binary.
func taken(t *testing.T, s settings) error {
	t.Helper()
	got, err := ask(pod(s, one))
	if err != nil {
		return fmt.Errorf("the policy refuses them: %w", err)
	}
	return got.configured(t.TempDir())
}

// starts reports whether the binary takes a configuration.
func starts(env ...string) bool {
	cmd := exec.Command(binary, "config")
	cmd.Env = append([]string{"SIDECAR_SERVICE=orders-billing"}, env...)
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 64) {
		panic(fmt.Sprintf("%v: %v", env, err))
	}
	return err == nil
}
