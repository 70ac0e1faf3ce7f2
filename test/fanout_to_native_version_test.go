package test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// step runs a step of deploy/migrate/fanout-to-native.sh.
func step(t testing.TB, args ...string) (code int, said string) {
	t.Helper()
	c := exec.Command("../deploy/migrate/fanout-to-native.sh", append([]string{"-p", brokertest.VhostName(t)}, args...)...)
	c.Env = append(c.Environ(), "RABBITMQCTL="+brokertest.CtlPath(t))
	out, err := c.CombinedOutput()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), string(out)
}

func wantStep(t testing.TB, code int, says string, args ...string) {
	t.Helper()
	if got, said := step(t, args...); got != code || !strings.Contains(said, says) {
		t.Errorf("%v: exit %d, want %d and %q:\n%s", args, got, code, says, said)
	}
}

// TestFanoutToNativeAsksForTheVersion on the broker that all tests share, whichever it is; also as a script from standard
// input, as kubectl exec gives it to a broker's pod.
func TestFanoutToNativeAsksForTheVersion(t *testing.T) {
	t.Parallel()
	says := `no queue "none"`
	if v := brokertest.Version(t); strings.HasPrefix(v, "3.") || strings.HasPrefix(v, "4.0.") {
		says = "older than RabbitMQ 4.3"
	}
	wantStep(t, 1, says, "check", "none")
	script := must.Get(os.ReadFile("../deploy/migrate/fanout-to-native.sh"))(t)
	for want, args := range map[string][]string{says: {"-p", brokertest.VhostName(t), "check", "none"}, "usage: ": {"begin"}} {
		c := exec.Command("bash", append([]string{"-s", "--"}, args...)...)
		c.Env, c.Stdin = append(c.Environ(), "RABBITMQCTL="+brokertest.CtlPath(t)), bytes.NewReader(script)
		out, _ := c.CombinedOutput() //nolint:errcheck // what it printed is judged, refusals included
		if !strings.Contains(string(out), want) {
			t.Errorf("%v: want %q:\n%s", args, want, out)
		}
	}
}
