package test

import (
	"strings"
	"testing"
	"time"
)

// TestPortInUse is the one thing about the machine that ends the process: exit 1, naming the variable and the address.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	taken := newApp(t)
	for _, name := range []string{"SIDECAR_ADMIN_ADDR", "SIDECAR_CONTROL_ADDR", "SIDECAR_PUBLISH_ADDR"} {
		env := valid()
		env[name] = taken.Addr
		if r := command(t, env, "run"); r.code != 1 || !strings.Contains(r.stderr, name+"="+taken.Addr+": address already in use: stop") {
			t.Errorf("%s in use: exit %d, want 1, the variable and the address:\n%s", name, r.code, r.all())
		}
	}
}

// TestFewFileDescriptors: it may be slow, it must not lose, park or die. Idle connections to the app hold the
// descriptors until they are closed, so that consumption pauses for some seconds after every 30 messages.
func TestFewFileDescriptors(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONCURRENCY", "50", "MAX_RETRIES", "0").seed()
	sc.app.otherwise(func(*delivery) answer { return answer{status: 200, gate: soon()} })
	s := launchBinary(t, "sh", sc.env, "-c", "ulimit -n 32 && exec "+program)
	ids := numbered("m", 50)
	sc.send(ids...)
	sc.app.awaitAll(ids...)
	if s.ended() || !s.log.mentions("too many open files") {
		t.Errorf("ended: %v, or it had descriptors enough", s.ended())
	}
	if n := sc.ready(sc.dlq()); n != 0 {
		t.Errorf("%d messages were parked for the lack of file descriptors", n)
	}
}

// soon closes by itself, so that many requests are in flight at once.
func soon() <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(50*time.Millisecond, func() { close(c) })
	return c
}
