package test

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sidecar/internal/testkit/must"
)

// TestDLQRedriveEnded: the first SIGINT or SIGTERM ends a redrive at a safe point, whenever it comes. The command
// says how far it has come, and that is exactly what has been moved.
func TestDLQRedriveEnded(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("QUEUE_TYPE", "quorum").declared()
	ids := numbered("m", 200)
	sc.parkIDs(503, ids...)
	moved := 0
	stopped := func(sig syscall.Signal, least int, args ...string) {
		t.Helper()
		r := launch(t, sc.env, append([]string{"dlq", "redrive", "--all", "--json"}, args...)...)
		eventually(t, "some more messages", func() bool { return sc.ready(sc.queue()) >= moved+least })
		if least == 1 { // it goes on for hours
			other := sc.cli(1, "list")
			if !strings.Contains(other.stderr, "is in use: another operation runs on ") || !strings.Contains(other.stderr, sc.dlq()) {
				t.Errorf("beside it: %q", other.stderr)
			}
		}
		r.signal(sig)
		code := r.exitCode()
		text := r.log.String()
		var d done
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "{") {
				must.Do(t, json.Unmarshal([]byte(line), &d))
			}
		}
		if code != 1 || !strings.Contains(text, "the rest is still in the queue") || d.Failed != 0 || !strings.Contains(d.Error, "stopped by a signal") {
			t.Errorf("exit %d: %s", code, text)
		}
		moved += d.Done
		if n := sc.ready(sc.queue()); n != moved {
			t.Errorf("%d messages moved, said to be: %d", n, moved)
		}
		if got := sc.listedIDs(); !slices.Equal(got, ids[moved:]) {
			t.Errorf("%d moved, parked still: %q", moved, got)
		}
	}
	stopped(syscall.SIGINT, 20, "--rate", "50/s")
	stopped(syscall.SIGTERM, 1, "--rate", "1/m")
	stopped(syscall.SIGTERM, 3, "--canary", "3")
	if d := sc.acted("redrive", "--all"); d.Done != len(ids)-moved {
		t.Errorf("%d moved, then %+v", moved, d)
	}
}
