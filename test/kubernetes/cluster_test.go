//go:build kubernetes

package kubernetes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

// patience is how long a test waits for what must come. It is generous: the machine may be busy with other things.
const patience = 3 * time.Minute

// eventually waits until look finds nothing to complain about.
func eventually(t testing.TB, what string, look func() error) {
	t.Helper()
	end := time.Now().Add(patience)
	for {
		err := look()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no %s within %s: %v", what, patience, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// command runs a program and returns what it writes to stdout.
func command(stdin, name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.Stdin = strings.NewReader(stdin)
	var out, problem bytes.Buffer
	c.Stdout, c.Stderr = &out, &problem
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out.String(), problem.String())
	}
	return out.String(), nil
}

// kubectl runs kubectl in the namespace of the scene; a failure fails the test.
func (s *scene) kubectl(args ...string) string {
	s.t.Helper()
	return must.Get(s.tryKubectl("", args...))(s.t)
}

func (s *scene) tryKubectl(stdin string, args ...string) (string, error) {
	return command(stdin, "kubectl", append([]string{"--namespace", s.namespace}, args...)...)
}

// apply creates or changes objects.
func (s *scene) apply(manifest string) {
	s.t.Helper()
	must.Get(s.tryKubectl(manifest, "apply", "-f", "-"))(s.t)
}

// pod is what the tests read of a pod.
type pod struct {
	Metadata struct{ Name, DeletionTimestamp string }
	Status   struct {
		Phase                                    string
		Conditions                               []condition
		InitContainerStatuses, ContainerStatuses []container
	}
}

type condition struct{ Type, Status string }

type container struct {
	Name, ContainerID string
	RestartCount      int
	Ready             bool
	State, LastState  struct{ Terminated *ended }
}

type ended struct {
	Reason   string
	ExitCode int
}

func (p pod) ready() bool {
	return slices.Contains(p.Status.Conditions, condition{"Ready", "True"})
}

// container returns the status of a container of either kind.
func (p pod) container(name string) container {
	for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if c.Name == name {
			return c
		}
	}
	return container{Name: name}
}

// pods returns those of the release.
func (s *scene) pods() []pod {
	s.t.Helper()
	var list struct {
		Items []pod `json:"items"`
	}
	must.Do(s.t, json.Unmarshal([]byte(s.kubectl("get", "pods", "-l", s.ofRelease(), "-o", "json")), &list))
	return list.Items
}

// waitPod waits for the one pod of the release to be as it is asked for.
func (s *scene) waitPod(what string, is func(pod) bool) pod {
	s.t.Helper()
	var found pod
	eventually(s.t, "pod that "+what, func() error {
		pods := s.pods()
		if len(pods) != 1 {
			return fmt.Errorf("there are %d pods", len(pods))
		}
		if found = pods[0]; !is(found) {
			return fmt.Errorf("pod %s does not: phase %s, ready %t", found.Metadata.Name, found.Status.Phase, found.ready())
		}
		return nil
	})
	return found
}

func (s *scene) waitReady() pod {
	s.t.Helper()
	return s.waitPod("is ready", pod.ready)
}

// stayed: the release's pod is the one of before, and did not restart this container.
func (s *scene) stayed(before pod, container string) {
	s.t.Helper()
	p := s.waitReady()
	if n := p.container(container).RestartCount; n != 0 || p.Metadata.Name != before.Metadata.Name {
		s.t.Errorf("pod %s became %s, whose %s was restarted %d times", before.Metadata.Name, p.Metadata.Name, container, n)
	}
}

// killContainer ends a container's processes from the node, without warning.
func (s *scene) killContainer(p pod, name string) {
	s.t.Helper()
	_, id, found := strings.Cut(p.container(name).ContainerID, "://")
	if !found {
		s.t.Fatalf("container %s of pod %s has no id", name, p.Metadata.Name)
	}
	// The user is root for the kill; hostPID shows the processes of the node.
	s.apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "killer"}, "spec": {
		"hostPID": true, "restartPolicy": "Never", "automountServiceAccountToken": false, "containers": [{"name": "killer",
		"image": %q, "args": ["kill", %q], "securityContext": {"runAsUser": 0}}]}}`, env.app, id))
	eventually(s.t, "kill of "+name, func() error {
		phase := s.kubectl("get", "pod", "killer", "-o", "jsonpath={.status.phase}")
		if phase == "Failed" {
			s.t.Fatalf("the killer says: %s", s.kubectl("logs", "killer"))
		}
		if phase != "Succeeded" {
			return fmt.Errorf("the killer is %s", phase)
		}
		return nil
	})
	s.kubectl("delete", "pod", "killer")
}

// autopsy writes down what is known about the namespace of a test that failed.
func (s *scene) autopsy() {
	s.t.Helper()
	for _, args := range [][]string{
		{"get", "all", "-o", "wide"}, {"describe", "pods"}, {"get", "events", "--sort-by=.lastTimestamp"},
	} {
		out, _ := s.tryKubectl("", args...)
		s.t.Logf("kubectl %s\n%s", strings.Join(args, " "), out)
	}
	names, _ := s.tryKubectl("", "get", "pods", "-o", "jsonpath={.items[*].metadata.name}")
	for name := range strings.FieldsSeq(names) {
		for _, args := range [][]string{{"--previous"}, nil} {
			args = append([]string{"logs", name, "--all-containers", "--prefix", "--tail=60", "--ignore-errors"}, args...)
			out, _ := s.tryKubectl("", args...)
			s.t.Logf("kubectl %s\n%s", strings.Join(args, " "), out)
		}
	}
	for _, e := range s.ledger.all("boot", "sigterm") {
		s.t.Logf("ledger: %s %s %s (run %s) inflight %d sidecar %q", e.At.Format("15:04:05.000"), e.Kind, e.Pod, e.Boot, e.Inflight, e.Sidecar)
	}
}
