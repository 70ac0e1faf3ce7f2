//go:build kubernetes

package kubernetes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

// A rolling update under load loses nothing, repeats nothing and counts nothing, and the app of a pod that ends gets
// SIGTERM only when the sidecar has nothing left in its hands.
func TestRollout(t *testing.T) {
	for name, native := range map[string]string{"native": "true", "classic": "false"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			values := append(s.collectorValue(), "--set", "replicaCount=2", "--set", "sidecar.native="+native)
			s.install(values...)
			s.rollout(native == "true", func() { s.upgrade(append(values, "--set", "podAnnotations.rollout=second")...) })
		})
	}
}

// labelled is a Deployment of the app without any sidecar. %[1]s is the service, %[2]s the app's image, %[3]s the
// collector and %[4]s the sidecar's image.
const labelled = `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": %[1]q}, "spec": {
	"replicas": 2, "selector": {"matchLabels": {"app.kubernetes.io/instance": %[1]q}}, "template": {
		"metadata": {"labels": {"app.kubernetes.io/instance": %[1]q, "amqp-sidecar/inject": "true"}, "annotations": {
			"amqp-sidecar/service": %[1]q, "amqp-sidecar/broker-secret": "broker", "amqp-sidecar/image": %[4]q}},
		"spec": {"containers": [{"name": "web", "image": %[2]q, "env": [{"name": "COLLECTOR", "value": %[3]q}]}]}}}}`

// A label is all that it takes, and pods that got their sidecar that way roll like those of the chart.
// test/kubernetes/inject has what is admitted, and that the Kustomize component makes the same pods.
func TestInjectedRollout(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	policies := filepath.Join(root, "deploy/inject")
	must.Get(command("", "kubectl", "apply", "-k", policies))(t)
	t.Cleanup(func() {
		if _, err := command("", "kubectl", "delete", "-k", policies); err != nil {
			t.Error(err)
		}
	})
	probe := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "probe-", "labels": {"amqp-sidecar/inject": "true"},
		"annotations": {"amqp-sidecar/service": "a", "amqp-sidecar/broker-secret": "a"}}, "spec": {"containers": [{"name": "a", "image": %q}]}}`, env.app)
	eventually(t, "policies at work", func() error {
		names, err := s.tryKubectl(probe, "create", "--dry-run=server", "-f", "-", "-o", "jsonpath={.spec.initContainers[*].name}")
		if err == nil && names != "sidecar" {
			err = errors.New("nothing was injected")
		}
		return err
	})
	s.apply(fmt.Sprintf(labelled, s.service, env.app, s.ledger.url, env.image))
	s.rollout(true, func() { s.kubectl("rollout", "restart", "deployment", s.service) })
}

// rollout replaces two pods under load, by roll.
func (s *scene) rollout(native bool, roll func()) {
	s.t.Helper()
	old := s.waitPods(2)
	logs := map[string]func() map[string]line{}
	for _, p := range old {
		logs[p] = s.follow(p)
	}
	stop := s.load(25*time.Millisecond, order{Work: "300ms"})
	slow := s.publish(slices.Repeat([]order{{Work: "8s"}}, 4)...)
	s.waitBegun(slow...)

	roll()
	s.waitGone(old...)
	s.waitPods(2)
	ids := append(stop(), slow...)
	s.t.Logf("%d messages", len(ids))

	s.ledger.waitHandled(s.t, ids...)
	s.ledger.exactlyOnce(s.t, ids...)
	returned := 0
	for _, p := range old {
		drained, found := logs[p]()["drained"]
		if returned += drained.Returned; !found {
			s.t.Errorf("the sidecar of pod %s does not say that it has drained", p)
		}
		s.drainedFirst(p, native)
	}
	again := 0
	for _, e := range s.ledger.all("begin") {
		if e.Again == "true" {
			again++
		}
	}
	if again > returned {
		s.t.Errorf("%d messages came again, only %d were given back unseen", again, returned)
	}
	s.empty(queueOf(s.service), retryOf(s.service), dlqOf(s.service))
}

// collectorValue gives the app the collector's address before the first message does, so that a pod that never gets one
// reports too.
func (s *scene) collectorValue() []string {
	return []string{"--set", "app.env[0].name=COLLECTOR", "--set", "app.env[0].value=" + s.ledger.url}
}

// waitPods waits until the release has exactly n pods, all of them ready, and returns their names.
func (s *scene) waitPods(n int) []string {
	s.t.Helper()
	var names []string
	eventually(s.t, fmt.Sprintf("%d ready pods", n), func() error {
		names = nil
		for _, p := range s.pods() {
			if !p.ready() || p.Metadata.DeletionTimestamp != "" {
				return fmt.Errorf("pod %s is in phase %s, ready %t", p.Metadata.Name, p.Status.Phase, p.ready())
			}
			names = append(names, p.Metadata.Name)
		}
		if len(names) != n {
			return fmt.Errorf("there are %d", len(names))
		}
		return nil
	})
	return names
}

// waitGone waits until these pods have ended.
func (s *scene) waitGone(names ...string) {
	s.t.Helper()
	eventually(s.t, "end of the old pods", func() error {
		for _, p := range s.pods() {
			if slices.Contains(names, p.Metadata.Name) {
				return fmt.Errorf("pod %s is still there", p.Metadata.Name)
			}
		}
		return nil
	})
}

// waitBegun waits until an app has these messages in its hands.
func (s *scene) waitBegun(ids ...string) {
	s.t.Helper()
	eventually(s.t, "messages in the app's hands", func() error {
		begun := s.ledger.count("begin")
		for _, id := range ids {
			if begun[id] == 0 {
				return fmt.Errorf("%s is not", id)
			}
		}
		return nil
	})
}

// line is one of a sidecar's log.
type line struct {
	Event    string `json:"msg"`
	Returned int    `json:"returned"`
}

// follow reads the log of a pod's sidecar, which would be gone with the pod. The lines, by their event, are there when the log
// has ended.
func (s *scene) follow(pod string) (lines func() map[string]line) {
	s.t.Helper()
	var out bytes.Buffer
	c := exec.Command("kubectl", "--namespace", s.namespace, "logs", "--follow", pod, "-c", "sidecar")
	c.Stdout = &out
	must.Do(s.t, c.Start())
	lines = sync.OnceValue(func() map[string]line {
		_ = c.Wait()
		found := map[string]line{}
		for text := range bytes.Lines(out.Bytes()) {
			if l := (line{}); json.Unmarshal(text, &l) == nil {
				found[l.Event] = l
			}
		}
		return found
	})
	s.t.Cleanup(func() { _ = c.Process.Kill(); lines() })
	return lines
}

// drainedFirst: when the app of this pod got SIGTERM it had no message in its hands, and the sidecar beside it had
// drained.
func (s *scene) drainedFirst(pod string, native bool) {
	s.t.Helper()
	terms := slices.DeleteFunc(s.ledger.all("sigterm"), func(e event) bool { return e.Pod != pod })
	if len(terms) != 1 {
		s.t.Errorf("the app of pod %s got SIGTERM %d times", pod, len(terms))
		return
	}
	// The native sidecar stays until the app is gone. The classic one is asked to stop when its own hook is through.
	if state := terms[0].Sidecar; state != "drained" && (native || state != "gone") {
		s.t.Errorf("when the app of pod %s got SIGTERM, the sidecar was %s", pod, state)
	}
	if n := terms[0].Inflight; n != 0 {
		s.t.Errorf("when the app of pod %s got SIGTERM, it had %d messages in its hands", pod, n)
	}
	all := s.ledger.all()
	for _, e := range all[slices.Index(all, terms[0])+1:] {
		if e.Pod == pod {
			s.t.Errorf("pod %s: %s %s after SIGTERM", pod, e.Kind, e.ID)
		}
	}
}
